"""Values of environment variables."""

from __future__ import annotations

import doctest

from distributed_input.api import environment


def test_the_examples_in_docstrings_are_right() -> None:
    results = doctest.testmod(environment)
    assert results.attempted
    assert not results.failed


def test_a_local_run_does_not_pass_on_inherited_variables() -> None:
    # The user sets the job, so a local run must pass it on.
    assert environment.JOB_ENV not in environment.LOCAL_RUN_ENV
    assert {environment.TOKEN_ENV, environment.CONFIG_ENV} <= environment.LOCAL_RUN_ENV
