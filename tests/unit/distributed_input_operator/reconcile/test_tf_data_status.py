"""The address of the tf.data service in the status."""

from __future__ import annotations

from distributed_input_operator.reconcile.plan import plan, report
from tests.unit.distributed_input_operator.snapshots import NOW, snapshot


def test_the_status_has_the_address_only_if_the_input_has_the_service():
    found = snapshot(tfDataService={})
    status = report(found, plan(found, NOW), [], NOW) or {}
    assert status["tfDataService"] == {"address": "grpc://digits-dispatcher:7080"}
    plain = snapshot()
    assert "tfDataService" not in (report(plain, plan(plain, NOW), [], NOW) or {})
