"""What the processes of the controller and of the webhook share."""

from __future__ import annotations

from distributed_input_operator import process


def test_the_namespace_is_that_of_the_pod(monkeypatch, tmp_path):
    monkeypatch.setenv("POD_NAMESPACE", "mine")
    assert process.own_namespace() == "mine"
    monkeypatch.delenv("POD_NAMESPACE")
    file = tmp_path / "namespace"
    monkeypatch.setattr(process, "_OWN_NAMESPACE", file)
    assert process.own_namespace() == "default"
    file.write_text("theirs\n")
    assert process.own_namespace() == "theirs"
