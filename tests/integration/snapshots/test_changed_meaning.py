"""State is restored only with the parameters that it was built with. Each one is changed at a restart."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from py4j.clientserver import ClientServerConnection
from pyspark.sql import DataFrame, SparkSession

from penstock.connectors.noop import NoopSink
from penstock.errors import PlanChanged
from penstock.model.job_graph import SinkSpec
from penstock.planner.compiler import compile_plan
from penstock.snapshots.format.parameters import ARGUMENTS, PARAMETERS, changed_meaning
from penstock.snapshots.format.plan import plan_of
from tests.support.golden.meaning_cases import CASES, NEW_YORK, WINDOW, ZONE, Build, windowed
from tests.support.places import GOLDEN
from tests.support.queries.query_running import Inbox, Start, rows_of

pytestmark = pytest.mark.spark

MEANINGS = GOLDEN / "meanings"
"""Files of the first release that stored parameters. They never change."""


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", sorted(CASES))
def test_a_changed_parameter_of_state_is_refused_by_name(
    spark: SparkSession,
    spark_conf: Callable[[str, str], None],
    inbox: Inbox,
    start: Start,
    name: str,
) -> None:
    case = CASES[name]
    spark_conf(ZONE, NEW_YORK)
    inbox.add([(1, 10, 1.0), (1, 20, 2.0), (2, 2, 3.0)])

    def started(build: Build, mode: str) -> None:
        query = start(build(inbox.stream(spark)), format="noop", outputMode=mode)
        query.processAllAvailable()
        query.stop(snapshot=True)

    started(case.build, case.mode)
    for what, change in case.changes.items():
        if not change.refused:
            continue
        for setting, value in change.conf.items():
            spark_conf(setting, value)
        with pytest.raises(PlanChanged, match=change.refused) as caught:
            start(change.build(inbox.stream(spark)), format="noop", outputMode=change.mode or case.mode)
        assert "an empty checkpointLocation" in str(caught.value), what
        spark_conf(ZONE, NEW_YORK)
    started(case.build, case.mode)
    for change in case.changes.values():
        if change.refused:
            continue
        for setting, value in change.conf.items():
            spark_conf(setting, value)
        started(change.build, change.mode or case.mode)
        spark_conf(ZONE, NEW_YORK)


def test_state_with_changed_parameters_needs_the_option(spark: SparkSession, inbox: Inbox, start: Start) -> None:
    inbox.add([(1, 10, 1.0)])
    build, other = windowed(WINDOW, "key"), windowed("window(at, '5 minutes')", "key")
    query = start(build(inbox.stream(spark)))
    query.processAllAvailable()
    query.stop(snapshot=True)
    allowed = {"snapshots.allowChangedMeaning": "true"}
    with pytest.raises(PlanChanged, match="allowChangedMeaning=true: the query uses the state as it is"):
        start(other(inbox.stream(spark)))
    for options in (allowed, {}):  # the state is used, then the new parameters are stored
        query = start(other(inbox.stream(spark)), **options)
        query.processAllAvailable()
        query.stop(snapshot=True)
    with pytest.raises(PlanChanged, match=r"stored window\(at, 5 minutes.*, now window\(at, 10 minutes"):
        start(build(inbox.stream(spark)))


def test_stored_texts_of_parameters_do_not_change(
    spark: SparkSession, spark_conf: Callable[[str, str], None], inbox: Inbox
) -> None:
    """Other texts would make this release refuse existing locations."""
    spark_conf(ZONE, NEW_YORK)
    stored = json.loads((MEANINGS / "texts.json").read_text())
    assert {name: meanings(case.build(inbox.stream(spark)), case.mode) for name, case in CASES.items()} == stored


def meanings(df: DataFrame, mode: str) -> dict[str, dict[str, object]]:
    graph = compile_plan(df, mode).graph([SinkSpec("sink-0", "Sink", NoopSink())], 1, 128)
    return {
        operator_id: {part: operator[part] for part in (PARAMETERS, ARGUMENTS) if part in operator}
        for operator_id, operator in plan_of(graph).operators.items()
        if PARAMETERS in operator or ARGUMENTS in operator
    }


def test_no_answer_of_the_jvm_about_a_window_takes_two_packets(
    spark: SparkSession, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second packet would be 40 ms late (``penstock.planner.definitions._parse``)."""
    answers: list[str] = []
    send = ClientServerConnection.send_command
    monkeypatch.setattr(ClientServerConnection, "send_command", lambda *of: (answers.append(send(*of)), answers[-1])[1])
    found = meanings(windowed("window(at, '10 minutes', '2 minutes')")(inbox.stream(spark)), "append")
    assert [parts[PARAMETERS]["key 1"] for parts in found.values() if "key 1" in parts[PARAMETERS]] == [
        "window(at, 10 minutes, 2 minutes, 0 microseconds)"
    ]
    assert len(answers) > 100
    assert max(map(len, answers)) < 8192


def test_a_location_with_the_first_stored_texts_continues(
    spark: SparkSession, inbox: Inbox, start: Start, tmp_path: Path
) -> None:
    location = shutil.copytree(MEANINGS / "location", tmp_path / "checkpoint")
    inbox.add([(1, 5, 30.0), (2, 7, 7200.0)])
    with pytest.raises(PlanChanged, match=r"stored window\(at, 10 minutes.*, now window\(at, 5 minutes"):
        start(windowed("window(at, '5 minutes')", "key")(inbox.stream(spark)), checkpointLocation=str(location))
    query = start(windowed(WINDOW, "key")(inbox.stream(spark)).select("key", "total"))
    query.processAllAvailable()
    query.stop()
    assert rows_of(tmp_path / "out") == [(1, 35), (2, 2)], "what is stored: (1, 10), (1, 20), (2, 2)"


def test_parameters_that_a_plan_lacks_are_not_compared() -> None:
    told = {PARAMETERS: {"key 1": "a", "mode": "append"}, ARGUMENTS: ["sum(a)", "sum(b)"]}
    assert list(changed_meaning("x", {}, told)) == []
    assert list(changed_meaning("x", told, {})) == []
    assert list(changed_meaning("x", told, {PARAMETERS: {"key 1": "a", "key 2": "b"}})) == []
    assert list(changed_meaning("x", told, {**told, ARGUMENTS: ["sum(a * 2)", "sum(b)"]})) == []
    changed = list(changed_meaning("x", told, {PARAMETERS: {"key 1": "b"}, ARGUMENTS: ["sum(b)", "sum(a)"]}))
    assert [tuple(line) for line in changed] == [
        ("key 1 of x", "a", "b"),
        ("function 1 of x", "sum(a)", "sum(b)"),
        ("function 2 of x", "sum(b)", "sum(a)"),
    ]


def test_a_function_with_other_arguments_is_listed_once() -> None:
    stored = {PARAMETERS: {"function 1": "sum({a})"}, ARGUMENTS: ["sum(a)", "count(1)"]}
    changed = list(changed_meaning("x", stored, {PARAMETERS: {"function 1": "count(1)"}, ARGUMENTS: ["count(1)"]}))
    assert [tuple(line) for line in changed] == [("function 1 of x", "sum({a})", "count(1)")]
