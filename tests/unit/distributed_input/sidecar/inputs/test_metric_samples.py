from __future__ import annotations

from pathlib import Path

from distributed_input.runtime import metrics
from distributed_input.sidecar.inputs.metric_samples import samples
from tests.unit.distributed_input.sidecar.system import BATCH, ROWS, eventually, running


def test_all_metrics_of_the_sidecar_have_samples(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        job = system.add_sidecar()
        reader = system.connect()
        assert sum(batch.rows for batch in reader.units(reader.begin())) == ROWS
        eventually(lambda: job.sessions.stats().batches == ROWS // BATCH)
        assert job.sessions.stats().useful_limit.startswith("the dataset has 4 splits")
        job.streams.reconnects["UnavailableError"] += 2
        job.link.pool.lost_workers += 1
        found = {(sample.definition.name, sample.labels): sample.value for sample in samples(job)}
        reader.close()
    prefix = f"{metrics.PREFIX}sidecar"
    defined = {d.name for d in metrics.definitions() if d.name.startswith(prefix)}
    assert {name for name, _ in found} == defined
    value = {name.removeprefix(f"{prefix}_"): v for (name, _), v in found.items()}
    assert value["rows_total"] == ROWS
    assert value["batches_total"] == ROWS // BATCH
    assert value["bytes_total"] == ROWS * 8
    assert value["received_bytes_total"] >= ROWS * 8
    assert value["ring_bytes"] == 1 << 20
    assert value["useful_workers"] == 4
    assert value["worker_losses_total"] == 1
    assert 0 <= value["heartbeat_age_seconds"] < 5
    assert found[metrics.SIDECAR_RECONNECTS.name, ("train", "UnavailableError")] == 2
