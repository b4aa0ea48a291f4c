"""Command lines and environments of a run's processes."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import replace
from pathlib import Path

from distributed_input.api.config import CodeSource, DatasetConfig, InputConfig
from distributed_input.runner import plan
from distributed_input.runner.folders import RunFolders
from distributed_input.runner.plan import Plan, PlannedInput, PlannedTfDataService

FILES = RunFolders("r", Path("/run"), Path("/shm"))
CODE = DatasetConfig("code:dataset_fn", source=CodeSource(path="/code"))
RELAXED = InputConfig(CODE, seed=1, determinism="relaxed")
ONE = PlannedInput("train", RELAXED, workers=2, parallelism=3)
TWO = PlannedInput("eval", InputConfig(seed=2))


def of(*inputs: PlannedInput, trainers: int = 1, ranks: int = 1) -> Plan:
    return Plan(inputs, ("python", "train.py"), trainers, ranks)


def command(
    name: str,
    *inputs: PlannedInput,
    trainers: int = 1,
    ranks: int = 1,
    paths: RunFolders = FILES,
) -> list[str]:
    """Return the command of the seventh start of a process."""
    planned = of(*inputs, trainers=trainers, ranks=ranks)
    processes = [*plan.dispatchers(planned, paths), *plan.other_processes(planned, paths)]
    (found,) = [one for one in processes if one.name == name]
    return found.command(7)


def flags(command: list[str], name: str) -> list[str]:
    return [after for flag, after in itertools.pairwise(command) if flag == name]


def test_a_worker_gets_the_resources_settings():
    worker = command("worker-0", ONE)
    assert flags(worker, "--parallelism") == ["3"]
    assert flags(worker, "--path") == ["/code"]
    assert "--relaxed" in worker
    plain = command("worker-0", TWO)
    assert not {"--parallelism", "--path", "--relaxed", "--idle-cpus"} & set(plain)
    assert "--idle-cpus" in command("worker-0", replace(ONE, idle_cpus=True))


def test_a_worker_gets_the_folder_of_states_if_there_is_one():
    assert not flags(command("worker-0", ONE), "--state-dir")
    kept = replace(FILES, states=Path("/states"))
    assert flags(command("worker-0", ONE, paths=kept), "--state-dir") == ["/states"]


def test_a_worker_stores_splits_if_the_resource_says_so():
    assert not flags(command("worker-0", ONE), "--store-dir")
    kept = replace(ONE, store_dir=Path("/store"), store_bytes=5)
    assert flags(command("worker-0", kept), "--store-dir") == ["/store"]
    assert flags(command("worker-0", kept), "--store-bytes") == ["5"]


def test_a_sidecars_dispatchers_have_names_if_there_are_several_inputs():
    first, second = "unix:/shm/s/dispatcher-0", "unix:/shm/s/dispatcher-1"
    assert flags(command("sidecar-0", ONE), "--dispatcher") == [first]
    both = command("sidecar-3", ONE, TWO, trainers=4)
    assert flags(both, "--dispatcher") == [f"train={first}", f"eval={second}"]
    assert flags(both, "--consumer-index") == ["3"]
    assert flags(both, "--consumer-count") == ["4"]
    assert flags(both, "--dir") == ["/shm/3"]


def test_a_dispatcher_has_the_same_socket_at_each_start_and_a_worker_a_new_one():
    assert flags(command("train-dispatcher", ONE, TWO), "--listen") == ["unix:/shm/s/dispatcher-0"]
    worker = command("eval-worker-0", ONE, TWO)
    assert flags(worker, "--listen") == ["unix:/shm/s/worker-7"]
    assert flags(worker, "--dispatcher") == ["unix:/shm/s/dispatcher-1"]


def test_every_input_has_its_own_token():
    names = ("train-dispatcher", "train-worker-0", "eval-worker-0", "sidecar-0")
    tokens = [flags(command(name, ONE, TWO), "--token-file") for name in names]
    assert tokens == [["/run/tokens/train"]] * 2 + [["/run/tokens/eval"], ["/run/tokens"]]


def test_processes_do_not_get_the_trainers_accelerators_or_cluster():
    base = {
        "TF_CONFIG": "{}",
        "PATH": "/bin",
        "DISTRIBUTED_INPUT_TOKEN": "t",
        "PYTHONPATH": "src::/x",
    }
    env = plan.worker_env(plan.process_env(base, "r", "worker-0", 42))
    assert env["CUDA_VISIBLE_DEVICES"] == "-1"
    assert env["DISTRIBUTED_INPUT_RUN"] == "r:worker-0"
    assert env["DISTRIBUTED_INPUT_DIE_WITH_PARENT"] == "42"
    assert env["DISTRIBUTED_INPUT_MACHINE_WORKERS"] == "1"
    workers = [one for one in plan.other_processes(of(ONE, TWO), FILES) if "worker" in one.name]
    assert [one.env["DISTRIBUTED_INPUT_MACHINE_WORKERS"] for one in workers] == ["3"] * 3
    assert all(one.in_users_folder for one in workers)
    assert env["PATH"] == "/bin"
    assert env["PYTHONPATH"] == os.pathsep.join([os.path.abspath("src"), "", "/x"])
    assert not {"TF_CONFIG", "DISTRIBUTED_INPUT_TOKEN"} & set(env)


def test_a_trainer_gets_the_variables_of_connect_and_no_others():
    env = plan.trainer_env({"HOME": "/h"}, of(ONE, TWO), FILES, 0, [])
    assert env == {
        "HOME": "/h",
        "DISTRIBUTED_INPUT_DIR": "/shm/0",
        "DISTRIBUTED_INPUT_NAMES": "train,eval",
        "DISTRIBUTED_INPUT_CONSUMER_INDEX": "0",
        "DISTRIBUTED_INPUT_CONSUMER_COUNT": "1",
    }


def test_several_trainers_get_a_cluster_unless_the_user_has_set_one():
    several = of(ONE, trainers=2)
    env = plan.trainer_env({}, several, FILES, 1, [5000, 5001])
    assert json.loads(env["TF_CONFIG"]) == {
        "cluster": {"worker": ["127.0.0.1:5000", "127.0.0.1:5001"]},
        "task": {"type": "worker", "index": 1},
    }
    own = plan.trainer_env({"TF_CONFIG": "mine"}, several, FILES, 1, [5000, 5001])
    assert own["TF_CONFIG"] == "mine"


def test_ranks_share_a_sidecar_and_get_the_variables_of_torchrun():
    several = of(ONE, trainers=2, ranks=2)
    assert several.consumers == 4
    sidecar = command("sidecar-1", ONE, trainers=2, ranks=2)
    assert flags(sidecar, "--consumer-index") == ["1"]
    assert flags(sidecar, "--consumer-count") == ["2"]
    assert flags(sidecar, "--ranks-per-trainer") == ["2"]
    env = plan.trainer_env({"RANK": "9"}, several, FILES, 3, [1, 2, 3, 4, 5])
    assert env["DISTRIBUTED_INPUT_DIR"] == "/shm/1"
    assert env["DISTRIBUTED_INPUT_CONSUMER_INDEX"] == "1"
    assert (env["RANK"], env["WORLD_SIZE"]) == ("3", "4")
    assert (env["LOCAL_RANK"], env["LOCAL_WORLD_SIZE"]) == ("1", "2")
    assert (env["GROUP_RANK"], env["MASTER_ADDR"], env["MASTER_PORT"]) == ("1", "127.0.0.1", "5")
    cluster = json.loads(env["TF_CONFIG"])
    assert cluster["task"] == {"type": "worker", "index": 3}
    assert len(cluster["cluster"]["worker"]) == 4
    alone = plan.trainer_env({"RANK": "9"}, of(ONE, trainers=2), FILES, 1, [1, 2, 3])
    assert alone["RANK"] == "9"
    assert "LOCAL_RANK" not in alone


def test_trainers_of_one_rank_get_the_variables_of_torchrun():
    shared = replace(of(ONE, trainers=4), trainers_per_rank=2)
    (sidecar,) = [one for one in plan.other_processes(shared, FILES) if one.name == "sidecar-3"]
    assert flags(sidecar.command(0), "--ranks-per-trainer") == ["1/2"]
    env = plan.trainer_env({}, shared, FILES, 3, [1, 2, 3, 4, 5])
    assert (env["RANK"], env["WORLD_SIZE"], env["LOCAL_WORLD_SIZE"]) == ("3", "4", "1")


SERVICE = PlannedTfDataService(7080, (1, 2), cache_bytes=9)
WITH_SERVICE = PlannedInput("train", InputConfig(CODE), workers=2, tf_data_service=SERVICE)


def test_the_tf_data_service_has_fixed_ports():
    dispatcher = command("tf-data-dispatcher", WITH_SERVICE)
    assert flags(dispatcher, "--port") == ["7080"]
    assert flags(dispatcher, "--work-dir") == ["/run/journals/train"]
    assert not flags(dispatcher, "--static-workers")
    worker = command("tf-data-worker-1", WITH_SERVICE)
    assert flags(worker, "--dispatcher") == ["127.0.0.1:7080"]
    assert flags(worker, "--advertise") == ["127.0.0.1:2"]
    assert flags(worker, "--cache-bytes") == ["9"]
    assert flags(worker, "--path") == ["/code"]
    fixed = replace(WITH_SERVICE, tf_data_service=replace(SERVICE, static=True))
    static = command("tf-data-dispatcher", fixed)
    assert flags(static, "--static-workers") == ["127.0.0.1:1,127.0.0.1:2"]


def test_trainers_get_the_address_of_the_tf_data_service():
    name = "DISTRIBUTED_INPUT_TF_DATA_SERVICE"
    assert name not in plan.trainer_env({name: "an outer run's"}, of(ONE), FILES, 0, [])
    env = plan.trainer_env({}, of(WITH_SERVICE), FILES, 0, [])
    assert env[name] == "grpc://127.0.0.1:7080"
    other = replace(WITH_SERVICE, name="eval", tf_data_service=PlannedTfDataService(7090, (3,)))
    both = plan.trainer_env({}, of(WITH_SERVICE, other, ONE), FILES, 0, [])
    assert both[name] == "train=grpc://127.0.0.1:7080,eval=grpc://127.0.0.1:7090"
