"""The list of guards fits the sources, so that `make mutation` can remove each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.mutation.__main__ import ROOT, SOURCE, main, remove
from testing.mutation.guards import GUARDS, Guard


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_can_be_removed_and_has_a_test(guard: Guard, tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    source = (ROOT / SOURCE / guard.module).read_text()
    module.write_text(source)
    remove(guard, module)
    assert module.read_text() != source
    compile(module.read_text(), guard.module, "exec")
    assert (ROOT / guard.test.partition("::")[0]).exists()
    with pytest.raises(ValueError, match="0 times, not once"):
        remove(guard, module)


def test_an_unknown_guard_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["no such guard"])
    assert "no guard no such guard" in capsys.readouterr().err
