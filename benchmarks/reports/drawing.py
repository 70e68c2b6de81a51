"""Draw charts as SVG with matplotlib: rows with their spread, and lines over time.

The same results give the same bytes, so a test can compare the committed charts with the results. A chart follows the
reader's choice of light or dark, keeps its texts as texts, and needs no script and no font of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from xml.etree import ElementTree

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from benchmarks.reports.cells import short_number

WIDTH = 860
LEFT, RIGHT = 250, 700
"""Ends of the axis of values. Names are to the left of it, values to the right."""
TITLE_HEIGHT = 64
AXIS_HEIGHT = 44
ROW_HEIGHT = 20
GROUP_GAP = 10
SHORT_NAME = 8
"""Letters of the longest group name that fits to the left of its first row."""
PANEL_LEFT, PANEL_RIGHT = 80, 690
PANEL_NAME_HEIGHT = 24
PANEL_HEIGHT = 102

BACKGROUND, TEXT, SMALL_TEXT, GRID = "#ffffff", "#1f2328", "#59636e", "#d1d9e0"
COLORS = {"Penstock": "#1f5fbf", "Spark": "#b4500b", "Flink": "#2c7a3f"}
"""By engine."""
DARK = {
    BACKGROUND: "#0d1117",
    TEXT: "#f0f6fc",
    SMALL_TEXT: "#9198a1",
    GRID: "#3d444d",
    COLORS["Penstock"]: "#7db1ff",
    COLORS["Spark"]: "#ffa45c",
    COLORS["Flink"]: "#7fd394",
}
"""Replacements of the colors for readers who prefer dark pages."""
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "penstock",
    "figure.dpi": 72,
    "figure.facecolor": BACKGROUND,
    "font.size": 13,
    "text.color": TEXT,
    "axes.facecolor": "none",
    "axes.spines.bottom": False,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.autolimit_mode": "round_numbers",
    "axes.xmargin": 0,
    "axes.ymargin": 0,
    "axes.labelcolor": SMALL_TEXT,
    "axes.labelsize": 12,
    "grid.color": GRID,
    "lines.linewidth": 1.5,
    "xtick.color": SMALL_TEXT,
    "xtick.labelsize": 12,
    "xtick.major.size": 0,
    "ytick.color": SMALL_TEXT,
    "ytick.labelsize": 12,
    "ytick.major.size": 0,
    "legend.fontsize": 12,
    "legend.frameon": False,
    "legend.labelcolor": SMALL_TEXT,
}
"""Settings of matplotlib. At 72 dots per inch its point is a pixel."""
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
"""The time and the version of matplotlib would change the file without a change of the results."""


@dataclass(frozen=True)
class Row:
    """One row of a chart.

    Attributes:
        engine: a key of ``COLORS``.
        raw: a value to compare with, drawn as a vertical stroke; None if there is none.
        note: text after the value.
    """

    name: str
    engine: str
    least: float
    median: float
    most: float
    raw: float | None = None
    note: str = ""


@dataclass(frozen=True)
class RowChart:
    """Rows with their spread, in named groups.

    Attributes:
        unit: of all values.
        logarithmic: draw the median as a point on a logarithmic axis, not as a bar from 0.
    """

    title: str
    subtitle: str
    unit: str
    groups: Sequence[tuple[str, Sequence[Row]]]
    logarithmic: bool = False

    def rows(self) -> list[Row]:
        return [row for _, rows in self.groups for row in rows]

    def figure(self) -> Figure:
        named = sum(len(name) > SHORT_NAME for name, _ in self.groups)
        height = (len(self.rows()) + named) * ROW_HEIGHT + len(self.groups) * GROUP_GAP
        figure = _figure(self.title, self.subtitle, TITLE_HEIGHT + height + AXIS_HEIGHT)
        axes = _axes(figure, (LEFT, RIGHT), TITLE_HEIGHT, height)
        axes.set_xlabel(self.unit + (" (logarithmic)" if self.logarithmic else ""))
        if self.logarithmic:
            axes.set_xscale("log")
        else:
            axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_locator(NullLocator())
        heights: dict[str, list[tuple[Row, float]]] = {engine: [] for engine in COLORS}
        y = ROW_HEIGHT / 2
        for name, rows in self.groups:
            _row_text(axes, 16, y, name, weight="bold", bbox={"facecolor": BACKGROUND, "edgecolor": "none", "pad": 1})
            y += ROW_HEIGHT if len(name) > SHORT_NAME else 0
            for row in rows:
                _row_text(axes, LEFT - 10, y, row.name, ha="right")
                _row_text(axes, RIGHT + 12, y, f"{short_number(row.median)}{row.note}")
                heights[row.engine].append((row, y))
                y += ROW_HEIGHT
            y += GROUP_GAP
        for engine, placed in heights.items():
            self._draw(axes, COLORS[engine], placed)
        axes.set_ylim(height, 0)
        return figure

    def _draw(self, axes: Axes, color: str, rows: Sequence[tuple[Row, float]]) -> None:
        """Draw the rows of one engine at their heights."""
        medians, heights = [row.median for row, _ in rows], [y for _, y in rows]
        if self.logarithmic:
            axes.plot(medians, heights, "o", color=color, markersize=9)
        else:
            axes.barh(heights, medians, 12, color=color, alpha=0.55)
        spread = [(row, y) for row, y in rows if row.most > row.least]
        ends = [[row.least for row, _ in spread], [row.most for row, _ in spread]]
        axes.hlines([y for _, y in spread], *ends, color=color, linewidth=2)
        for side in ends:
            axes.plot(side, [y for _, y in spread], "|", color=color, markersize=8, markeredgewidth=2)
        raw = [(row.raw, y) for row, y in rows if row.raw is not None]
        axes.plot([value for value, _ in raw], [y for _, y in raw], "|", color=TEXT, markersize=14, markeredgewidth=2)


@dataclass(frozen=True)
class Line:
    """One line over time.

    Attributes:
        engine: a key of ``COLORS``.
        dashed: tells two lines of one color apart.
    """

    name: str
    engine: str
    values: Sequence[float]
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    """Lines with a common axis of values. ``name`` has their unit."""

    name: str
    lines: Sequence[Line]


@dataclass(frozen=True)
class TimeChart:
    """Panels below each other with a common axis of time; each begins at 0 and ends at its own largest value.

    Attributes:
        unit: of the times.
        times: of the values of each line, ascending from 0.
        warm_up: the end of the warm-up, drawn as a vertical stroke; 0 if there is none.
    """

    title: str
    subtitle: str
    unit: str
    times: Sequence[float]
    panels: Sequence[Panel]
    warm_up: float = 0.0

    def figure(self) -> Figure:
        pitch = PANEL_NAME_HEIGHT + PANEL_HEIGHT + 8
        figure = _figure(self.title, self.subtitle, TITLE_HEIGHT + len(self.panels) * pitch + AXIS_HEIGHT)
        for number, panel in enumerate(self.panels):
            top = TITLE_HEIGHT + number * pitch + PANEL_NAME_HEIGHT
            axes = _axes(figure, (PANEL_LEFT, PANEL_RIGHT), top, PANEL_HEIGHT)
            _text(figure, 16, top - 8, panel.name, weight="bold")
            axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
            for line in panel.lines:
                label = f"{line.name}: {short_number(line.values[-1])}"
                style = "--" if line.dashed else "-"
                axes.plot(self.times, line.values, style, color=COLORS[line.engine], label=label)
            if self.warm_up:
                axes.axvline(self.warm_up, color=TEXT, linewidth=2)
            axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), handlelength=1.8)
            axes.set_xlim(0, self.times[-1])
            axes.set_ylim(bottom=0)
            axes.grid(visible=False, axis="x")
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
            if number < len(self.panels) - 1:
                axes.tick_params(labelbottom=False)
        axes.set_xlabel(self.unit)
        return figure


def svg(chart: RowChart | TimeChart) -> str:
    """Return the whole file."""
    with matplotlib.rc_context(STYLE):
        file = BytesIO()
        chart.figure().savefig(file, format="svg", metadata=NO_METADATA)
    ElementTree.register_namespace("", "http://www.w3.org/2000/svg")
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    root = ElementTree.fromstring(file.getvalue())
    for side in ("width", "height"):
        root.set(side, root.attrib[side].removesuffix("pt"))
    root.set("role", "img")
    root.set("aria-label", f"{chart.title}. {chart.subtitle}")
    style = ElementTree.Element("style")
    style.text = dark_style()
    root.insert(0, style)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def dark_style() -> str:
    """CSS that replaces the colors of all shapes and texts for readers who prefer dark pages."""
    rules = [
        f'[style*="{use}: {light}"] {{ {use}: {dark} !important; }}'
        for light, dark in DARK.items()
        for use in ("fill", "stroke")
    ]
    return "\n".join(["@media (prefers-color-scheme: dark) {", *rules, "}"])


def _figure(title: str, subtitle: str, height: float) -> Figure:
    figure = Figure(figsize=(WIDTH / 72, height / 72))
    _text(figure, 16, 26, title, size=16, weight="bold")
    _text(figure, 16, 46, subtitle, size=12, color=SMALL_TEXT)
    return figure


def _axes(figure: Figure, sides: tuple[float, float], top: float, height: float) -> Axes:
    """Place axes by pixels from the left and from the top."""
    left, right = sides
    whole = figure.get_figheight() * 72
    return figure.add_axes((left / WIDTH, 1 - (top + height) / whole, (right - left) / WIDTH, height / whole))


def _text(figure: Figure, x: float, y: float, text: str, **style: object) -> None:
    """Place text by pixels from the left and from the top."""
    figure.text(x / WIDTH, 1 - y / (figure.get_figheight() * 72), text, **style)


def _row_text(axes: Axes, x: float, y: float, text: str, **style: object) -> None:
    """Place text at the height of a row, by pixels from the left of the chart."""
    place = {"transform": axes.get_yaxis_transform(), "va": "center_baseline"}
    axes.text((x - LEFT) / (RIGHT - LEFT), y, text, **place, **style)
