"""Each code block and command of the documentation has a check, and passes it."""

from __future__ import annotations

import shlex

import pytest

from testing.documentation import commands, manifests, python_code
from testing.documentation.blocks import ROOT, Block, all_blocks, blocks, pages

BLOCKS = list(all_blocks())
CHECKS = {
    "python": python_code.problems,
    "sh": commands.problems,
    "yaml": manifests.problems,
    "inline": lambda text: commands.command_problems(shlex.split(text), strict=False),
}
NO_CHECK = {
    "text": "a formula or a drawing",
    "dockerfile": "tests/publishing/test_install.py runs its commands",
}
"""Languages without a check here, and the reason."""


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_a_block_is_valid(block: Block) -> None:
    assert block.language in {*CHECKS, *NO_CHECK}, "add a check, or a reason for none"
    if check := CHECKS.get(block.language):
        assert check(block.text) == []


def test_the_pages_have_blocks_of_each_kind() -> None:
    assert {block.language for block in BLOCKS} == {*CHECKS, *NO_CHECK}
    assert len(pages()) > 15


@pytest.mark.parametrize("file", [*manifests.TESTED.values()])
def test_manifests_of_other_projects_are_tested(file: str) -> None:
    assert "documented_manifest(" in (ROOT / file).read_text()


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("python", "def f(:"),
        ("python", "distributed_input.conect('digits')"),
        ("sh", "distributed-input run input.yaml --wrokers 4 -- python train.py"),
        ("sh", "distributed-input exlpain"),
        ("sh", "distributed-input validate"),
        ("sh", "make tests"),
        ("sh", "python -m testing.bench --famlies photos"),
        ("sh", "python examples/none.py"),
        ("sh", "helm install a charts/distributed-input --set image.operator.repository=a"),
        ("sh", "kubectl apply -f examples/none.yaml"),
        ("sh", "docker build --target operators ."),
        ("sh", "pip install distributed-inputs"),
        ("sh", "for i in 1"),
        ("sh", "unknown-program"),
        ("inline", "distributed-input top --cuont 1"),
        ("inline", "make matirx"),
        ("yaml", "spec: {workers: {replica: 2}}"),
        ("yaml", "kind: InputPolicy\nspec: {budgets: [{name: a, limit: {}}]}"),
        ("yaml", "metadata: {labels: {distributed-input.dev/injekt: 'true'}}"),
        ("yaml", "kind: Unknown"),
        ("yaml", "encryption: {certManager: {issuer: {name: a}}}"),
    ],
)
def test_a_mistake_is_found(language: str, text: str) -> None:
    assert len(CHECKS[language](text)) == 1


def test_blocks_of_a_page() -> None:
    text = "a `make x`\n\n```sh\nmake y\n```\n\n    make z\n\n    a = b\n\n- c\n\n"
    text += "  ```python\n  d\n  ```\n"
    found = [(one.line, one.language, one.text.strip()) for one in blocks("p", text)]
    assert (3, "sh", "make y") in found
    assert (13, "python", "d") in found
    assert (1, "inline", "make x") in found
