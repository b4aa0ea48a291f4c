"""Reading of the resource file. Only `spec` and `validation` import the resource's models."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed_input.api.errors import ConfigError
from distributed_input.runner import start_checks
from distributed_input.runner.folders import check_encoding, store_folder
from distributed_input.runner.plan import PlannedInput, PlannedTfDataService
from distributed_input.runtime.addresses import free_ports

if TYPE_CHECKING:
    from distributed_input.api.resource.input import DistributedInput
    from distributed_input.api.resource.problems import Problem


def load(
    file: Path,
    workers: int | None = None,
    parallelism: int | None = None,
    idle_cpus: bool = False,
    trainers: int = 1,
    warn: Callable[[str], None] | None = None,
) -> list[PlannedInput]:
    """Return the inputs that `file` defines, in its order.

    `workers` and `parallelism` replace those in the file. With `idle_cpus`, the workers use only
    CPUs that the trainers leave idle. An input with spec.workers.local gets one such worker, unless
    `workers` sets their number. `warn` is called if the trainers cannot read an input with the
    batch size in the file, which is no error: a trainer may replace it.

    Raises:
        ConfigError: names the file, the field and the fix.
    """

    def check(resource: DistributedInput) -> Iterable[Problem]:
        from distributed_input.api.resource.problems import Problem
        from distributed_input.api.resource.topology import trainers_problem

        problem = trainers_problem(resource.spec, trainers, batch_size_is_final=False)
        likely = trainers_problem(resource.spec, trainers, batch_size_is_final=True)
        if likely and not problem and warn:
            warn(
                f"warning: {file}: {resource.metadata.name}: {likely}. The trainers fail unless "
                "they set another global_batch_size"
            )
        found = [problem] if problem else []
        dataset = resource.spec.dataset
        if dataset.entry_point:
            wrong = start_checks.entry_point_problem(dataset.entry_point.function, dataset.path)
            field = ("spec", "dataset", "entryPoint", "function")
            found += [Problem(field, wrong)] if wrong else []
        return found

    inputs = []
    for one in load_resources(file, check):
        local = one.spec.workers.local if workers is None else None
        count, cpus = (1, parallelism or local.cpus) if local else (workers, parallelism)
        inputs.append(replace(_input(one, count, cpus), idle_cpus=idle_cpus or local is not None))
    names = [one.name for one in inputs]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:  # the file has them in different namespaces, but this machine has none
        raise ConfigError(f"{file}: two inputs are named {repeated[0]}: rename one of them")
    return inputs


def load_resources(
    file: Path, check: Callable[[DistributedInput], Iterable[Problem]]
) -> list[DistributedInput]:
    """Return the resources in `file`. `check` returns further problems of a valid one.

    Raises:
        ConfigError: has one line for each problem, with file, line, field and fix.
    """
    check_encoding(file.absolute())  # a relative `source.path` starts at its folder
    try:
        from distributed_input.api.resource.load import load_all
    except ImportError as error:
        raise ConfigError(
            f"{file}: cannot import the resource's models ({error}). "
            "Run: pip install 'distributed-input[run]'"
        ) from error
    try:
        return load_all(file, check)
    except (OSError, ValueError) as error:
        raise ConfigError(str(error)) from error


def _input(resource: Any, workers: int | None, parallelism: int | None) -> PlannedInput:
    from distributed_input.api.resource.input import input_config
    from distributed_input.api.resource.scalars import quantity_bytes

    name, spec = resource.metadata.name, resource.spec
    scaling = spec.workers.autoscaling
    count = workers or (scaling.min_replicas if scaling else spec.workers.replicas)
    if not count:
        raise ConfigError(
            f"{name}: spec.workers.replicas is 0, which pauses the input: set --workers N"
        )
    return PlannedInput(
        name=name,
        config=input_config(resource),
        workers=count,
        parallelism=parallelism or spec.workers.parallelism,
        tf_data_service=_tf_data_service(spec.tf_data_service, count),
        store_dir=store_folder(os.environ) if spec.store else None,
        store_bytes=quantity_bytes(spec.store.size) if spec.store else None,
    )


def _tf_data_service(section: Any, workers: int) -> PlannedTfDataService | None:
    """Select free ports, except for the dispatcher if the resource names its port."""
    if section is None:
        return None
    from distributed_input.api.resource.scalars import quantity_bytes

    named = "port" in section.model_fields_set
    ports = free_ports(workers + 1)
    return PlannedTfDataService(
        port=section.port if named else ports[0],
        workers=tuple(ports[1:]),
        static=section.static_sharding,
        cache_bytes=quantity_bytes(section.cross_trainer_cache),
    )
