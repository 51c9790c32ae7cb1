"""Boards and alerts name existing metrics, labels and findings; promtool evaluates the rules."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from sapo_client.config import Config
from sapo_client.observe.findings import FindingCode
from sapo_client.observe.metrics import NodeMetrics

DEPLOY = Path(__file__).parents[3] / "client" / "deploy"
PROMTOOL = shutil.which("promtool")
_NAME = re.compile(r"\bsapo_[a-z_]+\b")
_MATCHER = re.compile(r"\b(sapo_[a-z_]+)\{([^}]*)\}")
_LABEL = re.compile(r"([a-z_]+)\s*(?:=|!=|=~|!~)")
_SCRAPED = {"instance", "job"}


def expressions() -> Iterator[tuple[str, str]]:
    """Yield file and expression of everything that asks for a metric."""
    rules: Any = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            yield "alerts.yaml", rule["expr"]
    board: Any = json.loads((DEPLOY / "grafana" / "sapo.json").read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield "sapo.json", target["expr"]
    tests: Any = yaml.safe_load((DEPLOY / "prometheus" / "alerts_test.yaml").read_text())
    for test in tests["tests"]:
        for series in test["input_series"]:
            yield "alerts_test.yaml", series["series"]


def labels_of() -> dict[str, set[str]]:
    """Return the labels of each sample that a node serves, by the sample's name."""
    described = {
        metric.name: set(metric.labels)
        for metric in NodeMetrics(version="", swarm_id="", node_id="").described()
    }
    histograms = {
        f"{name}{end}": labels for name, labels in described.items() for end in ("_bucket", "_count", "_sum")
    }
    return described | histograms


def test_every_metric_and_label_exists() -> None:
    known = labels_of()
    found = list(expressions())
    assert len(found) > 25
    for file, text in found:
        assert set(_NAME.findall(text)) <= set(known), (file, text)
        for name, inside in _MATCHER.findall(text):
            assert set(_LABEL.findall(inside)) <= known[name] | _SCRAPED, (file, text)


def test_described_metrics_are_those_that_are_served() -> None:
    node = NodeMetrics(version="1", swarm_id="s", node_id="n")
    families = {family.name for family in text_string_to_metric_families(node.render().decode())}
    served = {name for name in families if not name.endswith("_created")}
    assert served == {metric.name.removesuffix("_total") for metric in node.described()}


def test_every_finding_that_an_alert_names_exists() -> None:
    text = (DEPLOY / "prometheus" / "alerts_test.yaml").read_text()
    assert set(re.findall(r'code="([a-z_]+)"', text)) <= set(FindingCode)


def test_the_ports_and_files_of_the_examples_agree() -> None:
    scrape: Any = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())
    assert scrape["rule_files"] == ["alerts.yaml"]
    compose: Any = yaml.safe_load((DEPLOY / "docker" / "compose.yaml").read_text())
    [service] = compose["services"].values()
    dockerfile = (DEPLOY / "docker" / "compose.yaml").parent / service["build"]["context"]
    assert (dockerfile.resolve() / service["build"]["dockerfile"]).exists()
    text = (DEPLOY / "docker" / "Dockerfile").read_text()
    assert "/tcp/4001" in text
    for variable in re.findall(r"\b(SAPO_[A-Z_]+__[A-Z_]+)", text):
        section, _, key = variable.removeprefix("SAPO_").lower().partition("__")
        assert key in type(getattr(Config(), section)).model_fields


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool: it comes with Debian's package prometheus")
def test_promtool_accepts_the_rules_and_their_tests() -> None:
    assert PROMTOOL is not None
    for arguments in (("check", "rules", "alerts.yaml"), ("test", "rules", "alerts_test.yaml")):
        done = subprocess.run(
            [PROMTOOL, *arguments], cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
