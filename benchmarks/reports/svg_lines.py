"""Charts of figures over time: panels below each other with one axis of time, each from 0 to its own largest figure.

They are made and look as those of ``svg``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from benchmarks.reports.svg import WIDTH, figure, short, steps, style

LEFT = 80
RIGHT = 690
"""Of the panels; names of lines are to the right."""
TITLE_HEIGHT = 64
PANEL_HEIGHT = 110
NAME_HEIGHT = 24
"""Of a panel's name, above it."""
AXIS_HEIGHT = 44
STEPS = 3
"""At least so many along an upright axis."""
LABEL_GAP = 15
"""Names of lines that end beside each other are moved apart."""


@dataclass(frozen=True)
class Line:
    """``colour``: a key of ``svg.COLOURS``. ``dashed``: to tell two of one colour."""

    name: str
    colour: str
    values: Sequence[float]
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    """``name``: with the unit of its figures."""

    name: str
    lines: Sequence[Line]


@dataclass(frozen=True)
class Lines:
    """Attributes:
    times: of all values of all lines, ascending from 0.
    unit: of the times.
    since: what is before is drawn, and marked as not counted.
    """

    title: str
    subtitle: str
    unit: str
    times: Sequence[float]
    panels: Sequence[Panel]
    since: float = 0.0


def drawn_lines(chart: Lines) -> str:
    """The whole file."""
    return _Drawing(chart).text()


class _Drawing:
    def __init__(self, chart: Lines) -> None:
        self._chart = chart
        self._ticks = steps(chart.times[-1])
        self._bottom = TITLE_HEIGHT + len(chart.panels) * (NAME_HEIGHT + PANEL_HEIGHT)
        height = str(self._bottom + AXIS_HEIGHT)
        self._root = ElementTree.Element(
            "svg",
            {
                "xmlns": "http://www.w3.org/2000/svg",
                "viewBox": f"0 0 {WIDTH} {height}",
                "width": str(WIDTH),
                "height": height,
                "role": "img",
                "aria-label": f"{chart.title}. {chart.subtitle}",
            },
        )

    def text(self) -> str:
        own = ".line { fill: none; stroke-width: 1.5; } .dashed { stroke-dasharray: 5 3; } .end { text-anchor: end; }"
        self._add("style").text = f"{style()}\n{own}"
        self._add("rect", x=0, y=0, width=WIDTH, height=self._bottom + AXIS_HEIGHT, kind="ground")
        self._label(16, 26, self._chart.title, "title")
        self._label(16, 46, self._chart.subtitle, "small")
        for number, panel in enumerate(self._chart.panels):
            self._panel(panel, TITLE_HEIGHT + number * (NAME_HEIGHT + PANEL_HEIGHT) + NAME_HEIGHT)
        for tick in self._ticks:
            self._label(self._x(tick), self._bottom + 16, figure(tick), "small middle")
        self._label((LEFT + RIGHT) / 2, self._bottom + 34, self._chart.unit, "small middle")
        ElementTree.indent(self._root)
        return ElementTree.tostring(self._root, encoding="unicode") + "\n"

    def _panel(self, panel: Panel, top: float) -> None:
        scale = steps(max(max(line.values) for line in panel.lines), STEPS)
        bottom = top + PANEL_HEIGHT - 8

        def y(value: float) -> float:
            return bottom - value / scale[-1] * (bottom - top)

        self._label(16, top - 8, panel.name, "group")
        for tick in scale:
            self._stroke(LEFT, y(tick), RIGHT, y(tick), "grid")
            self._label(LEFT - 8, y(tick) + 4, figure(tick), "small end")
        if self._chart.since:
            self._stroke(self._x(self._chart.since), top, self._x(self._chart.since), bottom, "raw")
        for line in panel.lines:
            points = " ".join(
                f"{short(self._x(time))},{short(y(value))}"
                for time, value in zip(self._chart.times, line.values, strict=True)
            )
            self._add("polyline", points=points, kind=f"{line.colour} line{' dashed' if line.dashed else ''}")
        self._names(sorted((y(line.values[-1]), line.name, line.values[-1]) for line in panel.lines))

    def _names(self, ends: Sequence[tuple[float, str, float]]) -> None:
        lowest = 0.0
        for wanted, name, value in ends:
            lowest = max(wanted + 4, lowest + LABEL_GAP)
            self._label(RIGHT + 8, lowest, f"{name}: {figure(value)}", "small")

    def _x(self, time: float) -> float:
        return LEFT + time / self._ticks[-1] * (RIGHT - LEFT)

    def _label(self, x: float, y: float, text: str, kind: str) -> None:
        self._add("text", x=x, y=y, kind=kind).text = text

    def _stroke(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self._add("line", x1=x1, y1=y1, x2=x2, y2=y2, kind=kind)

    def _add(self, tag: str, kind: str = "", **attributes: float | str) -> ElementTree.Element:
        texts = {name: value if isinstance(value, str) else short(value) for name, value in attributes.items()}
        return ElementTree.SubElement(self._root, tag, texts | ({"class": kind} if kind else {}))
