from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from distributed_input.sidecar.steps.partition_facts import PartitionFacts


def test_a_merge_is_counted_and_ends_a_wait() -> None:
    facts, waiting = PartitionFacts(), threading.Event()

    def wait() -> bool:
        with facts.changed:
            waiting.set()
            return facts.changed.wait(10)

    with ThreadPoolExecutor(1) as executor:
        ended = executor.submit(wait)
        assert waiting.wait(10)
        assert facts.merged == 0
        facts.merge([])
        assert ended.result()
    assert facts.merged == 1
