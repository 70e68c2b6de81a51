"""Report of the demo: one self-contained HTML file."""

from __future__ import annotations

import re
from importlib.resources import files

from jinja2 import Environment

from penstock.cli.demo.results import DemoResults
from penstock.cli.demo.screen import megabytes

CHART_WIDTH, CHART_HEIGHT = 760, 160
_MARKUP = re.compile(r"\[/?[a-z ]*\]")


def write_report(results: DemoResults) -> None:
    """Write ``report.html`` into the run's directory."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["size"] = megabytes
    environment.filters["plain"] = lambda text: _MARKUP.sub("", text)
    template = environment.from_string(files("penstock.cli.demo").joinpath("report.html").read_text())
    results.report.write_text(
        template.render(results=results, curve=_curve(results), width=CHART_WIDTH, height=CHART_HEIGHT),
        encoding="utf-8",
    )


def _curve(results: DemoResults) -> str:
    """Return the points of an SVG polyline: in-flight bytes over time."""
    if not results.inflight:
        return ""
    end_s = max(results.inflight[-1][0], 1e-9)
    top = max(results.max_inflight_bytes, 1)
    return " ".join(
        f"{at_s / end_s * CHART_WIDTH:.1f},{CHART_HEIGHT - size / top * (CHART_HEIGHT - 8):.1f}"
        for at_s, size in results.inflight
    )
