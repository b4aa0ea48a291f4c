"""What holds for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A busy machine is no bug: pytest's timeout is the one limit of time.
settings.register_profile(
    "project", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("project")

# A real API server, started by the first test that asks for it.
pytest_plugins = ["testing.cluster.fixtures"]
