"""The resource file -> inputs. The only module here that knows the operator's typed model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from distributed_input.api.errors import ConfigError
from distributed_input.runner.plan import Input, Stock
from distributed_input.runner.processes.trainers import free_ports


def load(file: Path, workers: int | None = None, parallelism: int | None = None) -> list[Input]:
    """The inputs that `file` defines, in its order.

    `workers` and `parallelism`, where given, are used instead of the resource's. Raises
    ConfigError with one line that names file, field and remedy.
    """
    try:
        from distributed_input.api.resource.data_plane import data_plane_config
        from distributed_input.api.resource.load import load_all
    except ImportError as error:
        raise ConfigError(
            f"reading {file} needs the resource's definition ({error}): "
            "pip install 'distributed-input[run]'"
        ) from error
    try:
        resources = load_all(file)
    except (OSError, ValueError) as error:
        raise ConfigError(str(error)) from error
    inputs = [_input(one, data_plane_config(one), workers, parallelism) for one in resources]
    names = [one.name for one in inputs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:  # in two namespaces, which this machine does not have
        raise ConfigError(f"{file}: two inputs are named {twice[0]}: rename one of them")
    return inputs


def _input(
    resource: Any, config: dict[str, Any], workers: int | None, parallelism: int | None
) -> Input:
    name, spec = resource.metadata.name, resource.spec
    scaling = spec.workers.autoscaling
    wanted = workers or (scaling.min_replicas if scaling else spec.workers.replicas)
    if not wanted:
        raise ConfigError(
            f"{name}: spec.workers.replicas is 0, which pauses the input: give --workers N"
        )
    return Input(
        name=name,
        config=config,
        workers=wanted,
        parallelism=parallelism or spec.workers.parallelism,
        port=spec.dispatcher.port or 0,
        path=spec.dataset.source.path,
        relaxed=spec.determinism == "relaxed",
        stock=_stock(spec.tf_data_service, wanted),
    )


def _stock(section: Any, workers: int) -> Stock | None:
    """At the port that the resource names, where it names one; workers at any."""
    if section is None:
        return None
    from distributed_input.api.resource.scalars import quantity_bytes

    named = "port" in section.model_fields_set
    ports = free_ports(workers + 1)
    return Stock(
        port=section.port if named else ports[0],
        workers=tuple(ports[1:]),
        static=section.static_sharding,
        cache_bytes=quantity_bytes(section.cross_trainer_cache),
    )
