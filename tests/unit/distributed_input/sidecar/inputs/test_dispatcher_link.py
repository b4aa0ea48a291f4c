"""The link to the dispatcher: heartbeats, registration, facts and refusals.

This module is long because all tests of one module are in one file, and each guard of the module
has a test.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from distributed_input.api.errors import (
    ConfigError,
    DistributedInputError,
    FencedError,
    JobConflictError,
    ReplayError,
    UnavailableError,
)
from distributed_input.api.proto import dispatcher_pb2
from distributed_input.api.proto.dispatcher_pb2 import WorkerInfo
from distributed_input.api.proto.types_pb2 import Job, SourceTotals, Weights
from distributed_input.dispatcher.datasets import DatasetStore
from distributed_input.link.credentials import Credentials
from distributed_input.sidecar.inputs import dispatcher_link
from distributed_input.sidecar.inputs.dispatcher_link import DispatcherLink, _Registered
from distributed_input.sidecar.inputs.job_sessions import ConsumerStats
from distributed_input.sidecar.steps.partition_facts import LeftEpochError, OtherConsumerError
from tests.unit.distributed_input.dispatcher.builders import fact, job, without_run, worker
from tests.unit.distributed_input.sidecar.system import System, eventually, running


class FakeConsumer:
    """A consumer without facts. `refusals` are the errors it was given."""

    def __init__(self) -> None:
        self.refusals: list[DistributedInputError] = []
        self.current = ConsumerStats()
        self.dropped = 0  # number of times that it dropped the facts of earlier sessions
        self.joined = 0  # number of times that it joined a run

    def stats(self) -> ConsumerStats:
        return self.current

    def facts(self) -> list[dispatcher_pb2.PartitionFact]:
        return []

    def join(self) -> None:
        self.joined += 1

    def drop_facts(self) -> None:
        self.dropped += 1

    def refuse(self, error: DistributedInputError) -> None:
        self.refusals.append(error)


Start = Callable[..., DispatcherLink]


def create(address: str, index: int = 0, count: int = 1, pod: str = "") -> DispatcherLink:
    return DispatcherLink(address, Credentials(), index, count, FakeConsumer(), pod)


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    with running(tmp_path) as system:
        yield system


@pytest.fixture
def start(system: System) -> Iterator[Start]:
    """A function that starts a link and waits until it is connected."""
    links: list[DispatcherLink] = []

    def start(index: int = 0, count: int = 1, pod: str = "") -> DispatcherLink:
        link = create(system.address, index, count, pod)
        links.append(link)
        link.start()
        eventually(lambda: link.connected)
        return link

    yield start
    for link in links:
        if not link._stopping.is_set():
            link.stop()


def soon() -> float:
    """Return a deadline that suffices if nothing has to be waited for."""
    return time.monotonic() + 2.0


def registered(system: System) -> Job:
    entry = system.state.jobs.entry("train")
    assert entry is not None
    return entry.job


def holders(system: System) -> int:
    """Return the number of consumers of the job that the dispatcher counts as present."""
    entry = system.state.jobs.entry("train")
    return len(entry.consumers.live(system.clock.now())) if entry is not None else 0


def test_the_error_of_a_fenced_consumer_names_the_newer_one(system: System, start: Start) -> None:
    older = start()
    older.register(job(), b"", soon())
    newer = start()
    newer.register(job(), b"", soon())
    consumer = older._consumer
    assert isinstance(consumer, FakeConsumer)
    eventually(lambda: consumer.refusals)
    assert isinstance(consumer.refusals[0], FencedError)
    assert f"consumer 0 of 1 (incarnation {newer.incarnation})" in str(consumer.refusals[0])
    assert "set different consumer indices" in str(consumer.refusals[0])


def test_the_only_consumer_may_replace_its_job(system: System, start: Start) -> None:
    only = start()
    only.register(job(), b"", soon())
    eventually(lambda: holders(system) == 1)
    only.partition_facts.merge([fact(0, [3])])
    other = job(data=b"other")
    assert without_run(only.register(other, b"", soon())) == other
    assert without_run(registered(system)) == other
    # The lengths of the first job's splits are not those of the second job's.
    assert only.partition_facts.of(0, 0).rows_seen == 0


def test_a_job_opened_again_begins_a_run_without_facts(system: System, start: Start) -> None:
    only = start()
    run = only.register(job(), b"", soon()).run
    only.partition_facts.merge([fact(0, [3])])
    only.register(job(run=run), b"", soon())  # another sidecar would continue the run
    assert only.partition_facts.of(0, 0).rows_seen == 3
    assert without_run(only.register(job(), b"", soon())) == job()
    assert only.partition_facts.of(0, 0).rows_seen == 0
    assert only._consumer.dropped == 2


def test_all_consumers_together_may_replace_their_job(system: System, start: Start) -> None:
    first, second = start(0, 2), start(1, 2)
    first.register(job(), b"", soon())
    assert without_run(second.wait_for_job("train", "", soon())) == job()
    eventually(lambda: holders(system) == 2)
    second._release_job()
    other = job(data=b"other")
    assert without_run(first.register(other, b"", soon())) == other
    assert without_run(second.wait_for_job("train", "", soon())) == other


def test_a_released_job_is_not_registered_again(system: System, start: Start) -> None:
    """The answer to an earlier heartbeat arrives after the release."""
    only = start()
    only.register(job(), b"", soon())
    before = only._registered
    only._release_job()
    system.state.jobs._entries.clear()
    assert before.job is not None
    only._register_again(before, before.job, "a")
    assert system.state.jobs.entry("train") is None


def test_a_restarted_dispatcher_gets_the_dataset_even_if_it_has_the_job(
    system: System, start: Start
) -> None:
    """Workers that start later can get the dataset from the dispatcher only."""
    first = start(0, 2)
    traced = job(data=b"traced")
    first.register(traced, b"traced", soon())
    eventually(lambda: holders(system) == 1)
    # Another consumer has registered the job there before this one's next heartbeat.
    system.state.datasets = DatasetStore(1 << 20)
    system.state.dispatcher_id = "restarted"
    eventually(lambda: system.state.datasets.has(traced.dataset_id))


def test_the_next_run_need_not_wait_for_one_that_has_stopped(system: System, start: Start) -> None:
    before = start()
    before.register(job(), b"", soon())
    eventually(lambda: holders(system) == 1)
    before.stop()
    other = job(data=b"other")
    assert without_run(start().register(other, b"", soon())) == other


def test_a_link_stops_quickly_without_a_dispatcher(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        link = create(system.address)
        link.start()
        eventually(lambda: link.connected)
        link.register(job(), b"", soon())
    began = time.monotonic()
    link.stop()
    assert time.monotonic() - began < 6.0


def test_the_heartbeat_age_grows_without_a_dispatcher(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        link = create(system.address)
        link.start()
        eventually(lambda: link.connected)
        assert link.heartbeat_age < 5.0
    eventually(lambda: not link.connected)
    age = link.heartbeat_age
    eventually(lambda: link.heartbeat_age >= age + 0.1)
    link.stop()


def test_a_link_that_two_threads_stop_reports_its_end_once(system: System, start: Start) -> None:
    link = start()
    link.register(job(), b"", soon())
    eventually(lambda: holders(system))
    with ThreadPoolExecutor(2) as pool:
        for stopped in [pool.submit(link.stop) for _ in range(2)]:
            stopped.result(10)
    entry = system.state.jobs.entry("train")
    assert entry is not None
    assert entry.consumers.over


# With the answers that the test gives.


NEVER = threading.Event()


class Failure(grpc.RpcError):
    """The failure of a call, with the error that it is reported as."""

    def __init__(self, error: DistributedInputError) -> None:
        super().__init__(str(error))
        self.error = error


class GivenDispatcher:
    """The client of a dispatcher that gives these answers, and the last one again and again.

    `requests` are the heartbeats, and `registered` the datasets of the jobs registered.
    """

    address = "host:1"

    def __init__(self, *answers: Any) -> None:
        self.requests: list[dispatcher_pb2.ConsumerHeartbeatRequest] = []
        self.registered: list[bytes] = []
        self.closed = False
        self.on_heartbeat: Callable[[], object] = lambda: None
        self.on_upload: Callable[[], object] = lambda: None
        self.failure: Failure | None = None  # of all other calls
        self._answers = list(answers) or [answer()]
        self._busy = threading.Lock()

    def heartbeat(
        self, request: dispatcher_pb2.ConsumerHeartbeatRequest, timeout: float
    ) -> dispatcher_pb2.ConsumerHeartbeatResponse:
        """Return the next answer."""
        assert self._busy.acquire(blocking=False), "one heartbeat at a time"
        with contextlib.ExitStack() as stack:
            stack.callback(self._busy.release)
            self.requests.append(request)
            self.on_heartbeat()
            one = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
            if isinstance(one, Failure):
                raise one
            assert isinstance(one, dispatcher_pb2.ConsumerHeartbeatResponse)
            return one

    def upload(self, dataset_id: str, dataset: bytes, deadline: float = float("inf")) -> None:
        """Record the dataset."""
        self.on_upload()
        if self.failure is not None:
            raise self.failure
        if dataset:
            self.registered.append(dataset)

    def register_job(
        self, job: Job, dataset: bytes, incarnation: str, deadline: float = float("inf")
    ) -> Job:
        """Record the dataset."""
        self.upload("", dataset)
        return job

    def get_job(self, name: str, other_than: str = "") -> Job:
        """Return a job of this name."""
        if self.failure is not None:
            raise self.failure
        return job(name)

    def error_of(self, error: Failure, action: str) -> DistributedInputError:
        """Return the error of a failure."""
        return error.error

    def retry(self, call: Callable[[], Job], deadline: float, action: str) -> Job:
        """Make the call."""
        return call()

    def close(self) -> None:
        """Record the call."""
        self.closed = True


def answer(
    dispatcher: str = "a", workers: str = "", interval: float = 30.0, **fields: Any
) -> dispatcher_pb2.ConsumerHeartbeatResponse:
    """Return an answer of a dispatcher, with workers of these names."""
    infos = [WorkerInfo(worker_id=name, address="127.0.0.1:1") for name in workers]
    return dispatcher_pb2.ConsumerHeartbeatResponse(
        dispatcher_id=dispatcher, workers=infos, interval_seconds=interval, **fields
    )


Given = Callable[..., tuple[DispatcherLink, GivenDispatcher, FakeConsumer]]


@pytest.fixture
def given() -> Iterator[Given]:
    """A function that makes a link, without its thread, to a dispatcher with these answers."""
    links: list[DispatcherLink] = []

    def make(*answers: Any) -> tuple[DispatcherLink, GivenDispatcher, FakeConsumer]:
        link = create("host:1", 0, 2)
        dispatcher, consumer = GivenDispatcher(*answers), link._consumer
        link._client.close()
        any_client: Any = dispatcher
        link._client = any_client
        links.append(link)
        assert isinstance(consumer, FakeConsumer)
        return link, dispatcher, consumer

    yield make
    for link in links:
        if link._thread.ident is not None:
            link.stop()
        link.pool.close()


def usable(link: DispatcherLink) -> str:
    """Return the names of the workers that streams may use."""
    return "".join(name for name in "vw" if not link.pool.is_draining(name))


def test_a_heartbeat_has_the_consumer_and_its_job(given: Given) -> None:
    link, dispatcher, consumer = given()
    assert not link.connected
    assert link._send_heartbeat() == 30.0
    link.register(job(run="r"), b"", soon())
    web = SourceTotals(source="web", rows=3)
    weights = Weights(step=5, weights=[1, 3])
    consumer.current = ConsumerStats(
        rows=3, finished=True, pauses=True, sources=[web], weights=weights
    )
    link._send_heartbeat()
    link._send_heartbeat(leaving=True)
    first, second, third = dispatcher.requests
    assert (first.job, first.index, first.count, first.run) == ("", 0, 2, "")
    assert (second.job, second.rows, second.finished, second.run) == ("train", 3, True, "r")
    assert (first.pauses, second.pauses) == (False, True)
    assert list(second.sources) == [web]
    assert second.weights == weights
    assert not first.HasField("weights")
    assert (first.finished, third.finished) == (False, True)


@pytest.mark.parametrize(
    ("sent", "used"), [(0.0, 1.0), (float("nan"), 1.0), (float("inf"), 1.0), (120.0, 60.0)]
)
def test_an_interval_that_is_no_usable_time_is_replaced(
    given: Given, sent: float, used: float
) -> None:
    link, _, _ = given(answer(interval=sent))
    assert link._send_heartbeat() == used


def test_workers_that_left_are_not_used_except_after_a_restart_of_the_dispatcher(
    given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(
        dispatcher_link,
        "time",
        SimpleNamespace(monotonic=lambda: now, time_ns=time.time_ns),
    )
    link, _, _ = given(answer(workers="vw"), answer(workers="w"), answer("b", "v"), answer("b", ""))
    found = []
    for seconds in (0, 1, 1, 14, 2):
        now += seconds
        link._send_heartbeat()
        found.append(usable(link))
    assert found == ["vw", "w", "vw", "vw", ""]


def test_the_facts_of_the_other_consumers_are_kept(given: Given) -> None:
    link, _, _ = given(answer(facts=[fact(1, rows_seen=3)], run="r"))
    link.register(job(run="r"), b"", soon())
    link._send_heartbeat()
    assert link.partition_facts.of(0, 1).rows_seen == 3


def test_the_facts_of_another_run_are_dropped_and_a_trainer_that_reads_joins_it(
    given: Given,
) -> None:
    answers = [answer(facts=[fact(1, rows_seen=3)], run="later") for _ in range(3)]
    link, dispatcher, consumer = given(*answers)
    link.register(job(run="r"), b"", soon())
    consumer.current = ConsumerStats(no_trainer=True)
    link._send_heartbeat()
    assert link.partition_facts.of(0, 1).rows_seen == 0
    consumer.current = ConsumerStats()
    for _ in range(2):
        link._send_heartbeat()
    assert [one.run for one in dispatcher.requests] == ["r", "r", "later"]
    assert link.partition_facts.of(0, 1).rows_seen == 3


def test_a_trainer_that_joins_another_run_keeps_no_facts_of_the_others(given: Given) -> None:
    link, _, _ = given(answer(run="later"))
    link.register(job(run="r"), b"", soon())
    link.partition_facts.merge([fact(1, rows_seen=3)])
    link._send_heartbeat()
    assert link.partition_facts.of(0, 1).rows_seen == 0


def test_facts_that_arrive_while_another_run_is_joined_are_dropped(
    given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heartbeat's thread waits until the run is joined."""
    link, _, _ = given()
    link.register(job(run="r"), b"", soon())
    before = link._registered
    with ThreadPoolExecutor(1) as executor:
        merging: list[Any] = []

        def clear() -> None:
            cleared()
            request = dispatcher_pb2.ConsumerHeartbeatRequest(run="r")
            facts = answer(facts=[fact(1, rows_seen=3)], run="r")
            merging.append(executor.submit(link._merge_facts, before, request, facts, 1))
            with contextlib.suppress(TimeoutError):
                merging[0].result(0.1)

        cleared = link.partition_facts.clear
        monkeypatch.setattr(link.partition_facts, "clear", clear)
        link._join(_Registered(job(run="next")))
        for one in merging:
            one.result(10)
    assert link.partition_facts.of(0, 1).rows_seen == 0


def test_a_bug_does_not_end_the_heartbeats(given: Given) -> None:
    link, dispatcher, _ = given()

    def fail() -> None:
        dispatcher.on_heartbeat = lambda: None
        raise ValueError("a bug")

    dispatcher.on_heartbeat = fail
    link.start()
    eventually(lambda: link.connected)
    assert len(dispatcher.requests) == 2


def test_a_fence_is_reported_with_its_cause(given: Given) -> None:
    link, _, consumer = given(answer(fenced=True), answer(fenced=True, fenced_by="a newer one"))
    link._send_heartbeat()
    link._send_heartbeat()
    assert [type(one) for one in consumer.refusals] == [FencedError, FencedError]
    first, second = map(str, consumer.refusals)
    assert first == "this trainer was consumer 0 of 2 and stops here: another one took its place"
    assert second.endswith("stops here: a newer one")


def test_an_error_of_another_consumer_ends_waits_until_it_reads_again(given: Given) -> None:
    failed = answer(run="r", failed="trainer 1 has stopped", failed_epoch=4)
    link, _, consumer = given(answer(run="r"), failed, answer())
    consumer.current = ConsumerStats(epoch=4)
    link.register(job(run="r"), b"", soon())
    link._send_heartbeat()
    link.check_others(4, 1, 60)
    link._send_heartbeat()
    with pytest.raises(OtherConsumerError, match="trainer 1 has stopped"):
        link.check_others(4, 2, 0)
    link.check_others(4, link.next_heartbeat, 60)  # of an epoch that has begun since
    link.check_others(5, 2, 9.9)  # the other one may begin this epoch
    with pytest.raises(OtherConsumerError, match="trainer 1 has stopped"):
        link.check_others(5, 2, 10.0)
    link._send_heartbeat()
    link.check_others(4, 1, 60)


def test_a_consumer_that_has_left_an_epoch_ends_waits_of_that_epoch_alone(given: Given) -> None:
    link, _, consumer = given(answer(run="r", failed="trainer 1 reads epoch 5", failed_epoch=4))
    consumer.current = ConsumerStats(epoch=3)
    link.register(job(run="r"), b"", soon())
    link._send_heartbeat()
    link.check_others(3, 1, 9.9)  # its last facts may be on their way
    with pytest.raises(LeftEpochError, match="trainer 1 reads epoch 5"):
        link.check_others(3, 1, 10.0)
    link.check_others(4, 1, 60)  # which the other one reads


def test_an_error_of_another_consumer_does_not_reach_the_next_opening(given: Given) -> None:
    link, _, _ = given(answer(run="r", failed="trainer 1 has stopped"))
    link.register(job(run="r"), b"", soon())
    link._send_heartbeat()
    link.register(job(run="r"), b"", soon())
    link.check_others(0, 0, 60)


def test_a_contradiction_that_a_sidecar_finds_is_reported_to_the_others(given: Given) -> None:
    answers = [answer(run="r", facts=[fact(1, [rows])]) for rows in (3, 4)]
    link, dispatcher, _ = given(*answers, answer(run="r"))
    link.register(job(run="r"), b"", soon())
    for _ in range(3):
        link._send_heartbeat()
    with pytest.raises(ReplayError, match="a split has another length"):
        link.check_run()
    assert "a split has another length" in dispatcher.requests[-1].failed


def test_a_contradiction_ends_the_run_once_and_the_next_run_has_no_facts(given: Given) -> None:
    link, dispatcher, consumer = given(answer(contradiction="rows differ"))
    link.register(job(run="r"), b"", soon())
    link.partition_facts.merge([fact(0, [3])])
    link.check_run()
    assert link.partition_facts.of(0, 0).rows_seen == 3
    link._send_heartbeat()
    link._send_heartbeat()
    (refused,) = consumer.refusals
    assert isinstance(refused, ReplayError)
    assert str(refused).startswith("rows differ. All trainers must stop")
    with pytest.raises(ReplayError, match="rows differ"):
        link.check_run()
    # While the heartbeat of the run before is sent:
    dispatcher.on_heartbeat = lambda: link._join(_Registered(job(run="next")))
    link._send_heartbeat()
    link.check_run()
    assert link.partition_facts.of(0, 0).rows_seen == 0
    assert len(consumer.refusals) == 1


def registered_again(link: DispatcherLink) -> None:
    """Wait until a job that was not known is registered."""
    if link._registering is not None:
        link._registering.join(10)


def test_a_large_dataset_does_not_delay_heartbeats(given: Given) -> None:
    """Otherwise the dispatcher would report this consumer as gone."""
    link, dispatcher, _ = given(answer(interval=0.05, job_unknown=True))
    link.register(job(), b"data", soon())
    uploads, arrives = list[int](), threading.Event()

    def upload() -> None:
        uploads.append(1)
        arrives.wait(30)

    dispatcher.on_upload = upload
    link.start()
    eventually(lambda: uploads)
    sent = len(dispatcher.requests)
    eventually(lambda: len(dispatcher.requests) > sent + 3)
    assert len(uploads) == 1, "it is sent once at a time"
    arrives.set()
    eventually(lambda: len(dispatcher.registered) > 1)


def test_a_dataset_that_is_sent_while_the_link_stops_is_no_error(given: Given) -> None:
    link, dispatcher, consumer = given(answer(job_unknown=True))
    link.register(job(), b"data", soon())
    sends, closed = threading.Event(), threading.Event()

    def upload() -> None:
        sends.set()
        closed.wait(30)
        raise ValueError("Cannot invoke RPC on closed channel!")

    dispatcher.on_upload = upload
    link.start()
    assert sends.wait(10)
    link.stop()
    closed.set()
    registered_again(link)
    assert not consumer.refusals


def test_a_dispatcher_without_the_job_gets_it_once(given: Given) -> None:
    unknown = answer("b", job_unknown=True)
    link, dispatcher, _ = given(answer(), unknown, answer("b"), answer("c"), answer("c"))
    link._send_heartbeat()
    link.register(job(), b"data", soon())
    counts = []
    for _ in range(4):
        link._send_heartbeat()
        registered_again(link)
        counts.append(len(dispatcher.registered))
    assert counts == [2, 2, 3, 3]
    assert set(dispatcher.registered) == {b"data"}
    assert link._confirmed == 5


@pytest.mark.parametrize(
    ("error", "refused"), [(UnavailableError("later"), False), (ConfigError("never"), True)]
)
def test_a_job_that_cannot_be_registered_again_is_refused(
    given: Given, error: DistributedInputError, refused: bool
) -> None:
    link, dispatcher, consumer = given(answer(job_unknown=True))
    link.register(job(), b"", soon())
    dispatcher.failure = Failure(error)
    link._send_heartbeat()
    registered_again(link)
    assert consumer.refusals == [error] * refused
    assert link._confirmed == 0, "the facts are not known to the dispatcher"


def test_a_running_job_is_known_if_the_dispatcher_answers(given: Given) -> None:
    link, dispatcher, _ = given()
    assert link.running_job("other") == job("other")
    dispatcher.failure = Failure(UnavailableError("later"))
    assert link.running_job("other") is None


def test_a_job_that_another_consumer_registers_is_released_before(given: Given) -> None:
    link, dispatcher, _ = given()
    link.start()
    link.register(job(), b"", soon())
    eventually(lambda: dispatcher.requests[-1].job == "train")
    link.partition_facts.merge([fact(0, [3])])
    sent = len(dispatcher.requests)
    assert link.wait_for_job("train", "", soon()) == job()
    assert link.partition_facts.of(0, 0).rows_seen == 0
    eventually(lambda: dispatcher.requests[-1].job == "train" and len(dispatcher.requests) > sent)
    assert "" in [one.job for one in dispatcher.requests[sent:]]


@pytest.mark.parametrize(
    ("error", "refused", "reported"),
    [
        (UnavailableError("later"), False, False),
        (ConfigError("never"), True, False),
        (FencedError("fenced"), True, True),
        (JobConflictError("conflict"), True, True),
    ],
)
def test_a_failed_heartbeat_is_repeated_soon(
    given: Given, error: DistributedInputError, refused: bool, reported: bool
) -> None:
    link, dispatcher, consumer = given(Failure(error), Failure(error), answer(workers="w"))
    states: list[tuple[bool, DistributedInputError | None]] = []
    dispatcher.on_heartbeat = lambda: states.append((link.connected, link.refused))
    link.start()
    eventually(lambda: link.connected)
    assert link.refused is None
    assert states == [(False, None), *[(False, error if refused else None)] * 2]
    assert consumer.refusals == [error] * 2 * reported
    assert link._thread.daemon


def test_a_connection_that_is_lost_is_seen(given: Given) -> None:
    link, _, _ = given(answer(), Failure(UnavailableError("later")))
    link.start()
    eventually(lambda: link.connected)
    link.request_heartbeat()
    eventually(lambda: not link.connected)


def test_heartbeats_are_sent_on_request_and_limited(given: Given) -> None:
    link, dispatcher, _ = given()
    link.start()
    eventually(lambda: link.connected)
    link.request_heartbeat()
    eventually(lambda: len(dispatcher.requests) == 2)
    threading.Event().wait(0.2)
    assert len(dispatcher.requests) == 2, "one for the request"
    ends = time.monotonic() + 0.5
    while time.monotonic() < ends:
        link.request_heartbeat()
        threading.Event().wait(0.001)
    assert 3 <= len(dispatcher.requests) <= 14, "20 a second"


@pytest.mark.parametrize("connected", [True, False])
def test_a_link_that_stops_reports_its_end_if_it_is_connected(
    given: Given, connected: bool
) -> None:
    link, dispatcher, _ = given(answer() if connected else Failure(UnavailableError("later")))

    def wait() -> None:
        threading.Event().wait(0.2)

    dispatcher.on_heartbeat = wait
    link.start()
    eventually(lambda: dispatcher.requests)
    began = time.monotonic()
    link.stop()
    link.stop()
    assert time.monotonic() - began < 2.0, "well before the end of the interval"
    assert not link._thread.is_alive()
    assert sum(one.finished for one in dispatcher.requests) == connected
    assert dispatcher.requests[-1].finished == connected
    assert dispatcher.closed


def test_the_end_is_reported_after_the_heartbeat_on_its_way(
    given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher_link, "CALL_SECONDS", 0.05)
    link, dispatcher, _ = given()
    closed: list[str] = []
    monkeypatch.setattr(link.pool, "close", lambda: closed.append("pool"))
    link.start()
    eventually(lambda: link.connected)
    slow = threading.Event()

    def wait() -> None:
        if not slow.is_set():
            slow.set()
            threading.Event().wait(0.3)

    dispatcher.on_heartbeat = wait
    link.request_heartbeat()
    assert slow.wait(10)
    link.stop()
    assert [one.finished for one in dispatcher.requests] == [False, False, True]
    assert closed == ["pool"]


def test_facts_are_published_by_a_heartbeat_that_begins_later(given: Given) -> None:
    link, dispatcher, _ = given()
    with ThreadPoolExecutor(1) as executor:
        publishing: list[Any] = []

        def publish() -> None:
            publishing.append(executor.submit(link.publish_facts, 0.9, NEVER))
            eventually(link._requested.is_set)

        dispatcher.on_heartbeat = publish
        link._send_heartbeat()  # may have older facts
        dispatcher.on_heartbeat = lambda: None
        with pytest.raises(TimeoutError):
            publishing[0].result(0.1)
        link._send_heartbeat()
        assert publishing[0].result(10) is True


def test_facts_that_nothing_confirms_are_not_published(given: Given) -> None:
    link, _, _ = given()
    began = time.monotonic()
    assert link.publish_facts(0.05, NEVER) is False
    assert 0.05 <= time.monotonic() - began < 0.9
    cancelled = threading.Event()
    cancelled.set()
    assert link.publish_facts(30.0, cancelled) is False


def test_heartbeats_set_the_share_of_the_pods_own_worker(system: System, start: Start) -> None:
    for name, pod in (("own", "p"), ("other", "q"), ("remote", "")):
        beat = worker(name, f"127.0.0.1:{len(name)}", pod=pod, parallelism=2)
        system.state.worker_beat(system.clock.now(), beat)
    link = start(pod="p")
    # Two CPUs of five: the worker of the system does not report its parallelism.
    eventually(lambda: link.pool._local_share == 2 / 5)
    assert list(link.pool.local_counters()) == ["own"]
