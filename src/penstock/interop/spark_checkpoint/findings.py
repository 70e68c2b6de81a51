"""Findings: parts that cannot be mapped between Spark's engine and Penstock, reported together in one table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.errors import NotSupported

SAME = "build the DataFrame exactly as Spark's query had it"
"""Remedy if Spark's query and the DataFrame differ."""


class Finding(NamedTuple):
    """Line of the table: the part, the reason why it cannot be mapped, and the remedy."""

    what: str
    why: str
    way_out: str


def refuse(begin: str, findings: Sequence[Finding]) -> None:
    """Raise NotSupported with a table of the findings, if there are any. ``begin``: start of the text."""
    if findings:
        rows = "\n".join(f"  {line.what}: {line.why}; {line.way_out}" for line in findings)
        raise NotSupported(f"{begin}; nothing was written:\n{rows}")
