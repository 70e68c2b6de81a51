"""Compiler of Catalyst expressions.

A class that is not in the registry is refused. No function is approximated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.catalyst.trees import JavaTree
from penstock.functions import Expression, SessionConf
from penstock.functions.avro import plan as avro_plan
from penstock.functions.casts import plan as casts_plan
from penstock.functions.collections import plan as collections_plan
from penstock.functions.core import plan as core_plan
from penstock.functions.csv import plan as csv_plan
from penstock.functions.hashes import plan as hashes_plan
from penstock.functions.json import plan as json_plan
from penstock.functions.logic import plan as logic_plan
from penstock.functions.numbers import plan as numbers_plan
from penstock.functions.patterns import plan as patterns_plan
from penstock.functions.plan_registry import REGISTRY, Translation
from penstock.functions.text import plan as text_plan
from penstock.functions.times import plan as times_plan

FAMILIES = (
    core_plan,
    logic_plan,
    numbers_plan,
    casts_plan,
    text_plan,
    patterns_plan,
    times_plan,
    hashes_plan,
    collections_plan,
    json_plan,
    csv_plan,
    avro_plan,
)
"""The modules that fill the registry."""


def translate(
    tree: JavaTree, ordinals: Mapping[int, int], conf: SessionConf, fields: Mapping[int, Sequence[int]] | None = None
) -> Expression:
    """Compile one resolved, optimized Catalyst expression.

    Args:
        tree: the expression. An ``Alias`` is replaced by its child.
        ordinals: exprId of every attribute that the expression may read -> position of that column in the batches.
        conf: the session's settings. A setting of the expression itself (``evalMode``, ``timeZoneId``) overrides them.
        fields: exprId of every struct attribute of which only some fields are read -> ordinals of these fields; None if
            there is no such attribute.

    Raises:
        NotSupported: a class is not registered, or it is not supported in this form. The message has the SQL text of
            the expression and, if there is one, a workaround.
    """
    return Translation(ordinals, conf, fields or {})(tree)


def documentation() -> str:
    """Return the text of ``docs/expressions.md``: the registry as tables."""
    lines = [
        "# Expressions",
        "",
        "Generated from the registry (`python -m penstock.functions.plan`). Every class below is compared with",
        "Catalyst on edge values in `tests/integration/functions`, under ANSI and legacy mode; everything else is",
        "refused at `start()`, by name. Types: atomic types without collations, unless a limit says otherwise.",
    ]
    for area in sorted({entry.area for entry in REGISTRY.values()}):
        lines += ["", f"## {area}", "", "| Catalyst class | SQL | Limits |", "|---|---|---|"]
        for name, entry in REGISTRY.items():
            if entry.area == area:
                lines.append(f"| `{name}` | {_cell(entry.forms)} | {_cell(entry.limits)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(documentation(), end="")
