"""The demo's report: one HTML file that needs nothing else."""

from __future__ import annotations

import re
from importlib.resources import files

from jinja2 import Environment

from penstock.cli.demo.facts import Facts
from penstock.cli.demo.screen import megabytes

CHART_WIDTH, CHART_HEIGHT = 760, 160
_MARKUP = re.compile(r"\[/?[a-z ]*\]")


def write_report(facts: Facts) -> None:
    """Write ``report.html`` into the run's directory."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["size"] = megabytes
    environment.filters["plain"] = lambda text: _MARKUP.sub("", text)
    template = environment.from_string(files("penstock.cli.demo").joinpath("report.html").read_text())
    facts.report.write_text(
        template.render(facts=facts, curve=_curve(facts), width=CHART_WIDTH, height=CHART_HEIGHT), encoding="utf-8"
    )


def _curve(facts: Facts) -> str:
    """In-flight bytes over time as points of an SVG polyline."""
    if not facts.inflight:
        return ""
    end_s = max(facts.inflight[-1][0], 1e-9)
    top = max(facts.max_inflight_bytes, 1)
    return " ".join(
        f"{at_s / end_s * CHART_WIDTH:.1f},{CHART_HEIGHT - size / top * (CHART_HEIGHT - 8):.1f}"
        for at_s, size in facts.inflight
    )
