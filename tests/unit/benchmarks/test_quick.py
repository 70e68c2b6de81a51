"""Report of ``make bench-quick``: ratios, and the verdicts on their targets. Without Spark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import quick
from benchmarks.peers.flink.installation import FlinkError
from benchmarks.quick import Ratio, Target


def test_a_target_is_held_by_the_median_and_says_how_many_rounds_hold_it() -> None:
    ratio = Ratio("rate", [0.90, 0.95, 0.99], "none", Target(0.93, at_least=True))
    assert (ratio.value, ratio.held, ratio.verdict(), ratio.spread()) == (0.95, True, "held (2 of 3)", "0.9 to 0.99")
    ratio = Ratio("time", [1.9, 2.1, 2.2], "raw", Target(2.0, at_least=False))
    assert (ratio.held, ratio.verdict()) == (False, "NOT held (1 of 3)")
    assert Ratio("one", [1.0], "x").spread() == "once"


def test_without_a_target_nothing_is_judged() -> None:
    ratio = Ratio("rate", [2.0], "Spark's")
    assert (ratio.held, ratio.verdict()) == (None, "")


@pytest.mark.parametrize(("at_least", "held"), [(True, True), (False, True)])
def test_what_is_exactly_the_target_holds_it(at_least: bool, held: bool) -> None:
    assert Target(1.0, at_least).holds(1.0) is held


def test_beside_spark_speed_is_sparks_seconds_by_ours_and_cpu_is_ours_by_sparks() -> None:
    figures = {
        "seconds": {"penstock": [1.0, 2.0], "spark": [4.0, 6.0]},
        "cpu_seconds": {"penstock": [2.0, 1.0], "spark": [8.0, 2.0]},
    }
    speed, cpu = quick.beside_spark("q5", figures, Target(3.0, at_least=True))
    assert (speed.name, [*speed.rounds], speed.held) == ("q5, rows/s", [4.0, 3.0], True)
    assert (cpu.name, [*cpu.rounds], cpu.held) == ("q5, CPU", [0.25, 0.5], None)


def test_the_table_has_every_ratio_and_the_summary_counts_those_with_a_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing() -> None:
        raise FlinkError(f"Apache Flink is not installed in {tmp_path}: run make flink")

    monkeypatch.setattr(quick, "installation", nothing)
    ratios = [
        Ratio("a", [1.0], "Spark's", Target(2.0, at_least=True)),
        Ratio("b", [3.0], "Spark's", Target(2.0, at_least=True)),
        Ratio("c", [4.5], "Flink's"),
    ]
    console = Console(width=120)
    with console.capture() as captured:
        console.print(quick.table_of(ratios))
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in captured.get().splitlines() if "│" in line]
    assert rows == [
        ["a", "1", "once", "Spark's", "at least 2", "NOT held (0 of 1)"],
        ["b", "3", "once", "Spark's", "at least 2", "held (1 of 1)"],
        ["c", "4.5", "once", "Flink's", "none", ""],
    ]
    said = quick.summary(ratios, 123.4)
    assert "1 of 2 targets held; 123 s in all, of 300 s that it may take." in said
    assert f"Without Flink's checkpoints: Apache Flink is not installed in {tmp_path}: run make flink." in said
    assert quick.flink_ratios({}) == []


def test_a_checkpoint_that_was_given_up_is_an_error_that_names_it() -> None:
    with pytest.raises(TimeoutError, match="Flink, unaligned: no checkpoint was complete within 75 s"):
        quick.completed("Flink, unaligned", {"checkpoints": [], "over_ms": 75_000.0})


def test_what_is_said_on_stderr_is_shown_only_if_it_fails(capfd: pytest.CaptureFixture[str]) -> None:
    with quick.quiet(Console(width=100)):
        os.write(2, b"noise\n")
    assert capfd.readouterr() == ("", "")

    def fail() -> None:
        with quick.quiet(Console(width=100)):
            os.write(2, b"why it broke\n")
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    os.write(2, b"behind it\n")
    assert capfd.readouterr() == ("why it broke\n\n", "behind it\n")
