"""What cannot be mapped between Spark's engine and Penstock: collected, and named all at once in one table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.errors import NotSupported

SAME = "build the DataFrame exactly as Spark's query had it"
"""The way out where Spark's query and the DataFrame differ."""


class Finding(NamedTuple):
    """One line of the table: which part, why it cannot be mapped, and what the user can do."""

    what: str
    why: str
    way_out: str


def refuse(begin: str, findings: Sequence[Finding]) -> None:
    """Raise NotSupported with the table if there is anything in it."""
    if findings:
        rows = "\n".join(f"  {line.what}: {line.why}; {line.way_out}" for line in findings)
        raise NotSupported(f"{begin}; nothing was written:\n{rows}")
