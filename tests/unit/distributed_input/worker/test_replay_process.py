"""Answers about steps as JSON values and as a file of arrays."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.rows import encode
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.worker.replay_process import answer, arrays_of, values_of_rows
from tests.unit.distributed_input.worker.test_replay import BATCH, config, saved


def ask(**question: Any) -> dict[str, Any]:
    position = base64.b64encode(saved().SerializeToString()).decode()
    return answer({"position": position, "config": config().to_json(), **question})


def test_steps_have_the_names_and_the_values_of_their_rows() -> None:
    named = ask(steps=[1, 2])
    assert named["values"] == []
    assert [one["step"] for one in named["ranges"]] == [1, 1, 2, 2]
    assert not any(one["verified"] for one in named["ranges"])
    printed = ask(steps=[1, 2], values=True)
    assert printed["ranges"] == named["ranges"]
    assert len(printed["values"]) == 2 * BATCH
    for row in printed["values"]:
        assert row["key"] == str(row["number"])
        assert len(row["noise"]) == 2
    (found,) = ask(find=["key", printed["values"][BATCH]["key"]])["found"]
    first = named["ranges"][2]
    assert found == {
        "step": 2, "source": None, "epoch": 1, "split": first["split"], "row": first["first_row"]
    }  # fmt: skip
    assert printed["assumed_from"] is None


def test_a_file_has_the_rows_and_their_names(tmp_path: Path) -> None:
    file = str(tmp_path / "rows.npz")
    printed = ask(steps=[1, 2], values=True)
    assert ask(steps=[1, 2], values=True, file=file) == {**printed, "values": []}
    with np.load(file, allow_pickle=True) as found:
        assert found["number"].tolist() == [row["number"] for row in printed["values"]]
        assert found["key"].tolist() == [row["key"].encode() for row in printed["values"]]
        assert found["lineage.step"].tolist() == [1] * BATCH + [2] * BATCH
        pairs = [
            (one["split"], one["first_row"] + at)
            for one in printed["ranges"]
            for at in range(one["rows"])
        ]
        assert found["lineage.split"].tolist() == [split for split, _ in pairs]
        assert found["lineage.row"].tolist() == [row for _, row in pairs]
        assert found["lineage.epoch"].tolist() == [1] * 2 * BATCH
        assert found["lineage.source"].tolist() == [""] * 2 * BATCH
    with pytest.raises(ConfigError, match="--save"):
        ask(steps=[1, 2], values=True, file=str(tmp_path / "none" / "rows.npz"))


def test_relaxed_datasets_are_not_computed_again() -> None:
    relaxed = config(determinism="relaxed").to_json()
    with pytest.raises(ConfigError, match="Relaxed"):
        ask(steps=[1, 1], values=True, config=relaxed)
    assert ask(steps=[1, 1], config=relaxed)["ranges"]


def test_components_that_are_no_arrays_have_several() -> None:
    leaves = (
        Leaf("file", "dense", "int64", ()),
        Leaf("words", "ragged", "string", (None, None), 1),
    )
    spec = ElementSpec({"file": 0, "words": 1}, leaves)
    import tensorflow as tf

    words = tf.ragged.constant([[[b"a", b"b"], [b"c\0"]], [[b"d"]]])
    encoder = encode.make_encoder(spec, True, None)
    rows, buffers, *_ = encoder({"file": tf.constant([3, 4], tf.int64), "words": words})
    assert rows == 2
    arrays = arrays_of(spec, 2, buffers)
    assert arrays["file"].tolist() == [3, 4]
    assert arrays["words.values"].tolist() == [b"a", b"b", b"c\0", b"d"]
    assert arrays["words.row_splits_0"].tolist() == [0, 2, 3]
    first, second = values_of_rows(spec, 2, buffers)
    assert (first["file"], first["words.values"]) == (3, ["a", "b", "c\0"])
    assert (second["file"], second["words.values"]) == (4, ["d"])
