"""``python -m penstock.rest.metric_page FILE``: insert the tables of metrics into a page, in place.

Each table replaces the text between ``<!-- metrics: GROUP -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from penstock.errors import ConfigError
from penstock.rest.metric_kinds import MetricSpec
from penstock.rest.metric_list import GROUPS

_PLACE = re.compile(r"<!-- metrics: (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def with_metrics(page: str) -> str:
    """Return the page with current tables.

    Raises:
        ConfigError: the page names a group that does not exist.
    """

    def written(match: re.Match[str]) -> str:
        group = GROUPS.get(match[1])
        if group is None:
            raise ConfigError(f"there is no group of metrics {match[1]!r}; there are {', '.join(GROUPS)}")
        return f"<!-- metrics: {match[1]} -->\n{_table(group)}\n<!-- end -->"

    return _PLACE.sub(written, page)


def _table(group: Sequence[MetricSpec]) -> str:
    labels = ", ".join(f"`{label}`" for label in group[0].labels) or "none"
    rows = [f"| `{spec.name}` | {spec.kind.value} | {spec.unit} | {spec.text} |" for spec in group]
    return "\n".join([f"Labels: {labels}.", "", "| metric | type | unit | meaning |", "|---|---|---|---|", *rows])


def main(arguments: Sequence[str]) -> int:
    """Rewrite the named files."""
    for name in arguments:
        path = Path(name)
        path.write_text(with_metrics(path.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
