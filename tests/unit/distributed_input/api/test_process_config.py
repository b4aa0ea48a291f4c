"""The flags and the document of a pod's process."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api import flags
from distributed_input.api.errors import ConfigError
from distributed_input.api.process_config import document_flags, field_of, split
from distributed_input.sidecar import main as sidecar
from distributed_input.worker import main as worker

TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1).filter(
    lambda text: not text.startswith("-")
)
SECONDS = st.floats(0, 1e6)


def optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


PROCESS = {name: optional(TEXTS) for name in ("token_file", "ready_file", "metrics_listen", "pod")}
PROCESS["grace_seconds"] = optional(SECONDS)
WORKERS = st.fixed_dictionaries(
    {
        "listen": TEXTS,
        "dispatcher": TEXTS,
        "relaxed": st.booleans(),
        "idle_cpus": st.booleans(),
        "plain_transfer": st.booleans(),
        **PROCESS,
        **{name: optional(TEXTS) for name in ("advertise", "path", "state_dir", "store_dir")},
        **{
            name: optional(st.integers(1)) for name in ("parallelism", "share_bytes", "store_bytes")
        },
    }
)
SIDECARS = st.fixed_dictionaries(
    {
        **{name: st.lists(TEXTS, min_size=1) for name in ("config", "dispatcher")},
        "dir": TEXTS,
        "consumer_index": st.integers(0),
        "consumer_count": st.integers(1),
        **PROCESS,
    }
)


def joined(arguments: list[str], document: str) -> list[str]:
    return [*(document_flags(document) if document else ()), *arguments]


@given(st.tuples(st.just(worker), WORKERS) | st.tuples(st.just(sidecar), SIDECARS))
def test_a_process_reads_the_same_from_flags_alone_and_with_a_document(of):
    process, settings = of
    arguments, parse = flags.arguments(**settings), process._parser().parse_args
    assert parse(joined(*split(arguments))) == parse(arguments)


def test_a_setting_that_a_process_may_ignore_is_a_field_of_the_document():
    arguments = ["--listen", ":1", "--state-dir", "/states", "--plain-transfer", "--pod", "p"]
    kept, document = split(arguments)
    assert kept == ["--listen", ":1", "--pod", "p"]
    assert json.loads(document) == {"version": 1, "stateDir": "/states", "plainTransfer": True}


def test_without_such_settings_there_is_no_document():
    assert split(["--listen", ":1"]) == (["--listen", ":1"], "")


def test_numbers_are_values_and_absent_values_are_defaults():
    fields = {"version": 1, "maxStreams": 5, "relaxed": False, "pod": None, "idleCpus": True}
    assert document_flags(json.dumps(fields)) == ["--max-streams=5", "--idle-cpus"]


def test_a_word_of_a_document_names_its_field():
    assert [field_of(word) for word in ("--state-dir=/a=b", "--idle-cpus")] == [
        "stateDir",
        "idleCpus",
    ]


@pytest.mark.parametrize("text", ["{", "[]", "1", "{}", '"version"'])
def test_what_is_not_a_document_is_refused_with_an_example(text):
    with pytest.raises(ConfigError, match=r'expected a JSON object like \{"version": 1\}, got'):
        document_flags(text)


def test_a_later_version_is_refused_with_the_remedy():
    with pytest.raises(ConfigError, match="reads version 1, not 2: use an image of the operator's"):
        document_flags('{"version": 2}')


def test_a_document_that_is_nested_too_deeply_is_refused():
    with pytest.raises(ConfigError, match="expected a JSON object"):
        document_flags("[" * 100_000)
