"""Paths and selectors of kinds."""

from __future__ import annotations

import pytest

from distributed_input_operator.kube.kinds import DEPLOYMENT, INPUT, POD, POLICY


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (POD.path(None), "/api/v1/pods"),
        (POD.path("team"), "/api/v1/namespaces/team/pods"),
        (DEPLOYMENT.path("team", "d"), "/apis/apps/v1/namespaces/team/deployments/d"),
        (POLICY.path(None, "cluster", "status"), f"{POLICY.path(None)}/cluster/status"),
    ],
)
def test_a_path_has_only_the_given_parts(path, expected):
    assert path == expected


def test_children_are_selected_by_label_and_inputs_are_not():
    assert POD.selector == DEPLOYMENT.selector == "distributed-input.dev/input"
    assert INPUT.selector == POLICY.selector == ""
