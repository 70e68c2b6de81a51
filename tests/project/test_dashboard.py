"""The Grafana dashboard and the alert rules ask for metrics that exist, and for nothing that they do not have."""

from __future__ import annotations

import json
import re
import runpy
from typing import Any

import pytest
import yaml

from tests.support.metrics.checked_expressions import SERIES, complaints, labels_of, result_labels
from tests.support.metrics.promql import read
from tests.support.places import ROOT

DEPLOY = ROOT / "deploy"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "penstock.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [(panel["title"], target) for panel in PANELS for target in panel["targets"]]
RULES = [
    rule
    for group in yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
LABEL_VALUES = re.compile(r"label_values\((?P<metric>.*), (?P<label>\w+)\)")


def test_the_dashboard_is_what_its_script_makes() -> None:
    made = runpy.run_path(str(DEPLOY / "grafana" / "dashboard.py"))["written"]()
    assert made == (DEPLOY / "grafana" / "penstock.json").read_text(), "run: python deploy/grafana/dashboard.py"


@pytest.mark.parametrize(("title", "target"), TARGETS, ids=[f"{title}-{t['refId']}" for title, t in TARGETS])
def test_every_line_asks_for_what_there_is(title: str, target: dict[str, Any]) -> None:
    assert not complaints(target["expr"]), target["expr"]
    shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
    assert shown <= result_labels(target["expr"]), f"the legend of {title} shows labels that its series do not have"


def test_every_choice_is_of_a_label_that_exists_and_is_used() -> None:
    variables = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
    for name in ("name", "query"):
        match = LABEL_VALUES.fullmatch(variables[name]["definition"])
        assert match is not None
        [use] = read(match["metric"]).uses
        assert {match["label"], *use.labels} <= labels_of(use.metric)
    said = json.dumps([panel["targets"] for panel in PANELS]) + json.dumps(variables["query"])
    named = set(re.findall(r"\$\{?(\w+)\}?", said)) - {"__rate_interval", "__range", "__all"}
    assert named == set(variables)


def test_panels_are_told_apart_and_do_not_overlap() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23
    assert all(panel["description"] for panel in PANELS), "every panel says what to make of it"


def test_the_dashboard_shows_every_metric_but_those_named_here() -> None:
    """A metric that nobody looks at is not worth its series."""
    shown = {SERIES[use.metric].name for _, target in TARGETS for use in read(target["expr"]).uses}
    assert {spec.name for spec in SERIES.values()} - shown == {
        "penstock_query_generation",
        "penstock_query_suspended",
        "penstock_query_committed_epoch",
        "penstock_checkpoints_pending",
        "penstock_checkpoint_last_duration_seconds",
        "penstock_checkpoint_last_state_bytes",
        "penstock_checkpoint_last_state_size_bytes",
        "penstock_subtask_rows_out_total",
        "penstock_subtask_state_rows",
    }


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_every_alert_asks_for_what_there_is(rule: dict[str, Any]) -> None:
    assert not complaints(rule["expr"]), rule["expr"]
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(rule["annotations"]) == {"summary", "description"}
    told = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
    assert told <= result_labels(rule["expr"]), "annotations tell labels that the result does not have"


def test_alerts_have_names_of_their_own() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(names) == len(set(names))
    assert all(name.startswith("Penstock") for name in names)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ("penstock_query_runing", "no metric penstock_query_runing"),
        ('penstock_query_running{vertex="1"}', "no label"),
        ("penstock_query_restarts_total", "use rate or increase"),
        ("rate(penstock_query_running[5m])", "is a gauge"),
        ("rate(penstock_query_restarts_total)", "lacks a range"),
        ("sum by (vertex) (penstock_query_running)", "nothing has the labels"),
        ("histogram_quantile(0.9, rate(penstock_commit_duration_seconds[5m]))", "no metric"),
    ],
)
def test_what_is_wrong_is_found(wrong: str, what: str) -> None:
    assert any(what in one for one in complaints(wrong))


@pytest.mark.parametrize(
    "wrong",
    ["sum(penstock_query_running", "penstock_query_running)", "summ(penstock_query_running)", "sum", "a[5m", "#"],
)
def test_what_cannot_be_read_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read(wrong)
