"""Lists in the guides are complete: the alerts of the chart, and the public names."""

from __future__ import annotations

import re

import yaml

import distributed_input
from testing.documentation.blocks import ROOT

DOCS = ROOT / "docs"


def test_each_alert_is_in_the_guide_with_its_severity() -> None:
    rules = yaml.safe_load((ROOT / "charts/distributed-input/files/rules.yaml").read_text())
    alerts = {
        rule["alert"]: rule["labels"]["severity"]
        for group in rules["groups"]
        for rule in group["rules"]
    }
    text = (DOCS / "monitoring.md").read_text()
    assert (
        dict(re.findall(r"^\| `(DistributedInput\w+)` \| (\w+) \|", text, re.MULTILINE)) == alerts
    )


def test_each_public_name_is_in_the_policy() -> None:
    text = (DOCS / "stability.md").read_text()
    listed = text.partition("Public names of `distributed_input`:")[2].partition("\n\nEvery")[0]
    assert re.findall(r"`(\w+)`", listed) == distributed_input.__all__
