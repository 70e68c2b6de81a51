"""Charts of rows: a name, a line from the least to the largest, and a mark at the median. As SVG, without a library.

They are made from raw figures whenever the page is, so the same figures give the same bytes. A chart follows the
reader's choice of light or dark, names everything in text, and needs no script and no font of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

WIDTH = 860
LEFT = 250
"""Of the axis: names are to the left of it."""
RIGHT = 700
"""Of the axis: figures are to the right of it."""
TITLE_HEIGHT = 64
ROW_HEIGHT = 20
GROUP_GAP = 10
AXIS_HEIGHT = 44
TICKS = 5
SHORT_NAME = 8
"""Letters of a group's name that has room beside its first row."""

COLOURS = {  # by engine: on white, on black
    "Penstock": ("#1f5fbf", "#7db1ff"),
    "Spark": ("#b4500b", "#ffa45c"),
    "Flink": ("#2c7a3f", "#7fd394"),
}


@dataclass(frozen=True)
class Row:
    """One line of a chart.

    Attributes:
        engine: a key of ``COLOURS``.
        raw: a figure that it is to be compared with, drawn as a small stroke; None: there is none.
        note: behind the figure.
    """

    name: str
    engine: str
    least: float
    median: float
    most: float
    raw: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Chart:
    """Attributes:
    unit: of all figures.
    groups: rows by what they have in common.
    logarithmic: where figures differ by more than a line can show. Else there is a bar from 0 to the median.
    """

    title: str
    subtitle: str
    unit: str
    groups: Sequence[tuple[str, Sequence[Row]]]
    logarithmic: bool = False

    def rows(self) -> list[Row]:
        return [row for _, rows in self.groups for row in rows]


def drawn(chart: Chart) -> str:
    """The whole file."""
    return _Drawing(chart).text()


class _Drawing:
    def __init__(self, chart: Chart) -> None:
        self._chart = chart
        rows = chart.rows()
        named = sum(len(name) > SHORT_NAME for name, _ in chart.groups)
        self._bottom = TITLE_HEIGHT + (len(rows) + named) * ROW_HEIGHT + len(chart.groups) * GROUP_GAP
        figures = [figure for row in rows for figure in (row.least, row.most, row.raw) if figure is not None]
        self._ticks = _decades(min(figures), max(figures)) if chart.logarithmic else steps(max(figures))
        self._root = ElementTree.Element(
            "svg",
            {
                "xmlns": "http://www.w3.org/2000/svg",
                "viewBox": f"0 0 {WIDTH} {self._bottom + AXIS_HEIGHT}",
                "width": str(WIDTH),
                "height": str(self._bottom + AXIS_HEIGHT),
                "role": "img",
                "aria-label": f"{chart.title}. {chart.subtitle}",
            },
        )

    def text(self) -> str:
        ElementTree.SubElement(self._root, "style").text = style()
        self._rectangle(0, 0, WIDTH, self._bottom + AXIS_HEIGHT, "ground")
        self._label(16, 26, self._chart.title, "title")
        self._label(16, 46, self._chart.subtitle, "small")
        self._axis()
        y = float(TITLE_HEIGHT)
        for name, rows in self._chart.groups:
            self._label(16, y + 14, name, "group")
            y += ROW_HEIGHT if len(name) > SHORT_NAME else 0
            for row in rows:
                self._row(row, y + ROW_HEIGHT / 2)
                y += ROW_HEIGHT
            y += GROUP_GAP
        ElementTree.indent(self._root)
        return ElementTree.tostring(self._root, encoding="unicode") + "\n"

    def _axis(self) -> None:
        for tick in self._ticks:
            x = self._x(tick)
            self._line(x, TITLE_HEIGHT - 4, x, self._bottom, "grid")
            self._label(x, self._bottom + 16, figure(tick), "small middle")
        scale = " (logarithmic)" if self._chart.logarithmic else ""
        self._label((LEFT + RIGHT) / 2, self._bottom + 34, self._chart.unit + scale, "small middle")

    def _row(self, row: Row, y: float) -> None:
        self._label(LEFT - 10, y + 4, row.name, "end")
        if not self._chart.logarithmic:
            self._rectangle(LEFT, y - 6, self._x(row.median) - LEFT, 12, f"bar {row.engine}")
        if row.most > row.least:
            self._line(self._x(row.least), y, self._x(row.most), y, f"spread {row.engine}")
            for end in (row.least, row.most):
                self._line(self._x(end), y - 4, self._x(end), y + 4, f"spread {row.engine}")
        if self._chart.logarithmic:
            place = {"cx": short(self._x(row.median)), "cy": short(y), "r": "5", "class": f"dot {row.engine}"}
            ElementTree.SubElement(self._root, "circle", place)
        if row.raw is not None:
            self._line(self._x(row.raw), y - 7, self._x(row.raw), y + 7, "raw")
        self._label(RIGHT + 12, y + 4, f"{figure(row.median)}{row.note}", "figure")

    def _x(self, figure: float) -> float:
        first, last = self._ticks[0], self._ticks[-1]
        if self._chart.logarithmic:
            share = math.log(figure / first) / math.log(last / first)
        else:
            share = (figure - first) / (last - first)
        return LEFT + share * (RIGHT - LEFT)

    def _label(self, x: float, y: float, text: str, kind: str) -> None:
        ElementTree.SubElement(self._root, "text", {"x": short(x), "y": short(y), "class": kind}).text = text

    def _line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        ends = {name: short(value) for name, value in (("x1", x1), ("y1", y1), ("x2", x2), ("y2", y2))}
        ElementTree.SubElement(self._root, "line", ends | {"class": kind})

    def _rectangle(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        sides = {name: short(value) for name, value in (("x", x), ("y", y), ("width", width), ("height", height))}
        ElementTree.SubElement(self._root, "rect", sides | {"class": kind})


def _decades(least: float, most: float) -> list[float]:
    """Powers of ten around all figures."""
    first, last = math.floor(math.log10(least)), math.ceil(math.log10(most))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def steps(most: float, count: int = TICKS) -> list[float]:
    """From 0, in about ``count`` round steps, to no less than ``most``."""
    rough = most / count
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * times for times in (1, 2, 2.5, 5, 10) if unit * times >= rough)
    return [step * number for number in range(math.ceil(most / step) + 1)]


def figure(value: float) -> str:
    """Three digits, or all before the point."""
    if value >= 100 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def short(value: float) -> str:
    """A coordinate."""
    return f"{value:.1f}".removesuffix(".0")


def style() -> str:
    """Of all charts."""
    light, dark = (
        [f".{engine} {{ fill: {pair[which]}; stroke: {pair[which]}; }}" for engine, pair in COLOURS.items()]
        for which in (0, 1)
    )
    return "\n".join(
        [
            "text { font: 13px system-ui, sans-serif; fill: #1f2328; }",
            ".title { font-size: 16px; font-weight: 600; }",
            ".group { font-weight: 600; paint-order: stroke; stroke: #ffffff; stroke-width: 4px; }",
            ".small { font-size: 12px; fill: #59636e; } .middle { text-anchor: middle; } .end { text-anchor: end; }",
            ".ground { fill: #ffffff; } .grid { stroke: #d1d9e0; } .raw { stroke: #1f2328; stroke-width: 2; }",
            ".bar { stroke: none; fill-opacity: 0.55; } .spread { stroke-width: 2; }",
            *light,
            ".bar { stroke: none; }",
            "@media (prefers-color-scheme: dark) {",
            "text { fill: #f0f6fc; } .small { fill: #9198a1; }",
            ".ground { fill: #0d1117; } .group { stroke: #0d1117; }",
            ".grid { stroke: #3d444d; } .raw { stroke: #f0f6fc; }",
            *dark,
            ".bar { stroke: none; }",
            "}",
        ]
    )
