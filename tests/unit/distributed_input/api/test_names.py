"""Names of Kubernetes objects."""

from __future__ import annotations

from distributed_input.api import names

LONGEST = "x" * 52


def test_derived_names_fit_the_limit_of_services() -> None:
    assert len(names.dispatcher(LONGEST)) <= 63
    assert len(names.worker(LONGEST)) <= 63


def test_a_label_of_readers_fits_the_limit_of_labels() -> None:
    prefix, _, name = names.reads_label(LONGEST).partition("/")
    assert prefix == "distributed-input.dev"
    assert len(name) <= 63


def test_the_selector_matches_the_labels() -> None:
    labels = names.labels("train", names.WORKER)
    assert names.selector("train", names.WORKER).items() <= labels.items()
    assert names.COMPONENT_LABEL not in names.labels("train")


def test_the_address_has_the_port_of_the_service() -> None:
    assert names.address("train") == "train-dispatcher:7070"
    assert names.address("train", 7080) == "train-dispatcher:7080"
