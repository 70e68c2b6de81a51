"""The page of the benchmarks and its charts are what the raw results give, and what is drawn is what was measured."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import pytest
from matplotlib.axes import Axes

from benchmarks.__main__ import BENCHMARKS
from benchmarks.lib import machine
from benchmarks.lib.harness import RESULTS
from benchmarks.reports import charts, drawing, page, readme_table
from benchmarks.reports.cells import spread
from benchmarks.reports.drawing import Row, RowChart, TimeChart

SVG = "{http://www.w3.org/2000/svg}"
AGAIN = "run: penstock bench --page"


# -- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_is_what_the_raw_results_give() -> None:
    assert page.PAGE.read_text() == page.page(), AGAIN


def test_the_charts_are_what_the_raw_results_give_and_there_are_no_others() -> None:
    kept = {file.name: file.read_text() for file in page.CHARTS.iterdir()}
    assert kept == page.charts(), AGAIN


def test_the_readme_has_the_headlines_of_what_was_measured() -> None:
    results = {file.stem: json.loads(file.read_text()) for file in kept()}
    readme = readme_table.README.read_text()
    assert readme == readme_table.placed(readme, results), AGAIN
    lines = readme_table.table(results).splitlines()[2:]
    assert len(lines) == sum(
        len(list(part(results[name]))) for name, part in readme_table.PARTS.items() if name in results
    )
    assert all(line.count("|") == 6 for line in lines)


def test_headlines_are_figures_of_the_results() -> None:
    cell = {"undisturbed": [100.0], "troubles": {"kill": [{"rows": 90, "seconds": 1.0}, {"rows": 60, "seconds": 1.0}]}}
    worse = {"undisturbed": [100.0], "troubles": {"kill": [{"rows": 50, "seconds": 1.0}]}}
    rest = {readme_table.FLIP_547: {"unaligned": worse}, "Spark": {"micro-batch": cell | {"troubles": {}}}}
    costs = {form: {"rows": {"mean": 1 - n / 100}} for n, form in enumerate(("unaligned", "default", "aligned"), 1)}
    load = {"summary": {"Penstock": costs, "Flink": costs}}
    rounds = {"seconds": {}, "cpu_seconds": {"penstock": [1.0], "flink": [4.0], "spark": [2.0]}}
    results: dict[str, Any] = {
        "progress": {"engines": {name: {"unaligned": cell} for name in (readme_table.QUEUES, "Flink")} | rest},
        "nexmark": {"flink": "2", "queries": {"q0": rounds}},
        "checkpoint_cost": {"loads": {"with backpressure": load, "without backpressure": load}},
    }
    assert readme_table.table(results).splitlines()[2:] == [
        "| progress with kill, of undisturbed | 0.75 | 0.75 | 0.50 |  |",
        "| Nexmark, 1 queries: events by CPU second, of Penstock's | 1 | 0.25 |  | 0.50 |",
        "| rows a second that an unaligned checkpoint every second costs, with backpressure | 1.0 % | 1.0 % |  |  |",
        "| rows a second that an unaligned checkpoint every second costs, without backpressure | 1.0 % | 1.0 % |  |  |",
        "| rows a second that a checkpoint as shipped (Flink: aligned) every second costs, without backpressure "
        "| 2.0 % | 3.0 % |  |  |",
    ]
    del results["nexmark"]["flink"]
    assert "Nexmark" not in readme_table.table(results), "it is of all three"


def test_the_page_shows_every_chart_and_every_benchmark_that_has_results() -> None:
    text = page.page()
    shown = re.findall(r"^!\[[^]]+\]\(benchmarks/([a-z-]+\.svg)\)$", text, re.MULTILINE)
    assert sorted(shown) == sorted(page.charts())
    measured = re.findall(r"^Measured by `penstock bench (\w+)`; \[raw figures\]\(../(\S+)\)\.$", text, re.MULTILINE)
    assert [name for name, _ in measured] == [name for name in page.SECTIONS if (RESULTS / f"{name}.json") in kept()]
    assert {Path(path) for _, path in measured} == {file.relative_to(page.PAGE.parent.parent) for file in kept()}


def kept() -> list[Path]:
    return sorted(RESULTS.glob("*.json"))


def test_every_benchmark_has_a_section_and_every_section_says_what_it_was_measured_on() -> None:
    assert set(BENCHMARKS) == set(page.SECTIONS)
    sections = page.page().split("\n## ")[1:]
    assert len(sections) == len(kept())
    assert [section for section in sections if not re.search(r"\n\(20\d\d-\d\d-\d\d, \d+ cores, ", section)] == []


# -- the machine ------------------------------------------------------------------------------------------------------


def test_what_a_result_does_not_say_of_its_machine_is_called_not_recorded() -> None:
    old = {"date": "2026-11-21", "cores": 2, "python": "3.11.7", "pyspark": "4.3.0", "pyarrow": "26.0.1"}
    assert machine.told(old) == (
        "2026-11-21, 2 cores, Python 3.11.7, PySpark 4.3.0, pyarrow 26.0.1; "
        "not recorded: CPU, memory, kernel, Penstock's commit, Java, numpy, pandas"
    )
    full = old | {"cpu": "one", "memory_bytes": 24 << 30, "kernel": "Linux 6", "java": "17", "penstock": "abc"}
    assert machine.told(full | {"numpy": "2", "pandas": "3"}) == (
        "2026-11-21, 2 cores, CPU one, memory 24 GiB, kernel Linux 6, Penstock's commit abc, Python 3.11.7, Java 17, "
        "PySpark 4.3.0, pyarrow 26.0.1, numpy 2, pandas 3"
    )


def test_what_is_recorded_now_has_all_that_the_page_tells() -> None:
    found = machine.recorded()
    assert {"date", "cores", "memory_bytes", "kernel", "python", "java", "pyspark", "pyarrow"} <= set(found)
    assert set(found) <= {"date", "cores", *machine.LABELS}
    assert re.fullmatch(r"\d+(\.\d+)*\S*", found["java"])


# -- spread and charts ------------------------------------------------------------------------------------------------


def test_a_median_comes_with_the_least_and_the_largest_and_a_single_round_is_called_that() -> None:
    assert spread([3.0e6, 1.0e6, 2.0e6], 1e6, 1) == "2.0 (1.0 to 3.0)"
    assert spread([1.234]) == "1.23 (once)"


def axes_of(chart: RowChart | TimeChart) -> Axes:
    with matplotlib.rc_context(drawing.STYLE):
        (axes,) = chart.figure().axes
        return axes


def spread_of(axes: Axes) -> list[list[float]]:
    """Least and largest value of each row that has a spread."""
    return [[x for x, _ in ends] for lines in axes.collections for ends in lines.get_segments()]


def points_of(axes: Axes, marker: str, size: float) -> list[float]:
    found = (line for line in axes.lines if (line.get_marker(), line.get_markersize()) == (marker, size))
    return [x for line in found for x in line.get_xdata()]


def texts(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_a_bar_ends_at_the_median_and_its_spread_goes_from_the_least_to_the_largest() -> None:
    chart = RowChart("Rates", "of two", "rows", [("a & <b>", [Row("one", "Spark", 25, 50, 100)])])
    axes = axes_of(chart)
    (bar,) = axes.patches
    assert (bar.get_x(), bar.get_width()) == (0, 50)
    assert spread_of(axes) == [[25, 100]]
    assert axes.get_xlim() == (0, 100)
    shown = texts(drawing.svg(chart))
    assert sorted(shown) == sorted(
        ["Rates", "of two", "0", "20", "40", "60", "80", "100", "rows", "a & <b>", "one", "50"]
    )


def test_a_logarithmic_chart_begins_and_ends_with_a_decade() -> None:
    rows = [Row("one", "Flink", 2, 10, 60, raw=9)]
    axes = axes_of(RowChart("Times", "", "ms", [("", rows)], logarithmic=True))
    assert axes.get_xscale() == "log"
    assert axes.get_xlim() == (1, 100)
    assert spread_of(axes) == [[2, 60]]
    assert points_of(axes, "o", 9) == [10]
    assert points_of(axes, "|", 14) == [9]


def test_one_round_has_no_spread_to_draw() -> None:
    chart = RowChart("t", "s", "u", [("", [charts.of_rounds("one", "Penstock", [5.0])])])
    assert spread_of(axes_of(chart)) == []
    assert "5 (once)" in texts(drawing.svg(chart))


def test_charts_can_be_read_on_white_and_on_black() -> None:
    """Contrasts as WCAG 2 wants them: 4.5 for text, 3 for shapes."""
    wanted = {drawing.TEXT: 4.5, drawing.SMALL_TEXT: 4.5, **dict.fromkeys(drawing.COLORS.values(), 3.0)}
    light = {color: color for color in drawing.DARK}
    for shown in (light, drawing.DARK):
        background = luminance(shown[drawing.BACKGROUND])
        for color, contrast in wanted.items():
            least, most = sorted((background, luminance(shown[color])))
            assert (most + 0.05) / (least + 0.05) >= contrast, shown[color]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", sorted(page.charts()))
def test_every_color_of_a_chart_has_one_for_dark_pages(name: str) -> None:
    chart = page.charts()[name]
    styles = [element.attrib.get("style", "") for element in ElementTree.fromstring(chart).iter()]
    used = {color for style in styles for color in re.findall(r"#\w+", style)}
    assert {drawing.BACKGROUND, drawing.TEXT, drawing.SMALL_TEXT} < used <= set(drawing.DARK)
    assert all(f"fill: {dark} !important" in chart for dark in drawing.DARK.values())
    assert all("fill: #" in text.attrib["style"] for text in ElementTree.fromstring(chart).iter(f"{SVG}text"))


def luminance(colour: str) -> float:
    """Relative luminance of sRGB, by WCAG 2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def raw(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text())


def test_nexmarks_rates_are_events_by_the_seconds_of_each_round() -> None:
    result = {"events": 2_000, "queries": {"q1": {"seconds": {"penstock": [1.0, 2.0, 4.0], "spark": [8.0]}},
                                           "q2": {"refused": "no"}}}  # fmt: skip
    assert charts.nexmark_rates(result).groups == [
        ("q1", [Row("Penstock", "Penstock", 0.5, 1.0, 2.0), Row("Spark", "Spark", 0.25, 0.25, 0.25, note=" (once)")])
    ]


def test_checkpoints_are_drawn_without_a_runs_first_and_one_that_was_given_up_took_longer() -> None:
    taken = [{"duration_ms": float(ms), "raw_write_ms": 1.0} for ms in (900, 10, 20, 40)]
    cells = {"unaligned": {"checkpoints": taken}, "aligned": {"checkpoints": [], "over_ms": 75_000.0}}
    table = {"engines": {"Penstock, default queues": cells}, "spark": {"micro_batch_ms": [100.0]}}
    (_, mine), (_, spark) = charts.checkpoints({"row_ms": {"1": table}}).groups
    assert mine == [
        Row("unaligned", "Penstock", 10.0, 20.0, 40.0, raw=1.0),
        Row("aligned", "Penstock", 75_000.0, 75_000.0, 75_000.0, note=" or more"),
    ]
    assert spark == [Row("micro-batch", "Spark", 100.0, 100.0, 100.0, note=" (once)")]


@pytest.mark.parametrize("name", sorted(name for name in charts.CHARTS if (RESULTS / f"{name}.json").exists()))
def test_every_row_of_a_chart_is_named_and_has_its_figures_in_order(name: str) -> None:
    for draw in charts.CHARTS[name].values():
        chart = draw(raw(name))
        if isinstance(chart, TimeChart):
            assert list(chart.times) == sorted(chart.times)
            assert all(line.name for panel in chart.panels for line in panel.lines)
        else:
            assert len(chart.rows()) > 3
            assert all(row.name and 0 < row.least <= row.median <= row.most for row in chart.rows())
