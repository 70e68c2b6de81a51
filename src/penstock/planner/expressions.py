"""From Catalyst's expressions to ours. What is not in the registry is refused; nothing is approximated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.operators.expressions import Expression, SessionConf
from penstock.planner import (
    expressions_avro,
    expressions_bitmaps,
    expressions_calendar,
    expressions_casts,
    expressions_collections,
    expressions_core,
    expressions_csv,
    expressions_hashes,
    expressions_json,
    expressions_lambdas,
    expressions_logic,
    expressions_math,
    expressions_numbers,
    expressions_patterns,
    expressions_strict_math,
    expressions_strings,
    expressions_texts,
    expressions_times,
)
from penstock.planner.catalyst import JavaTree
from penstock.planner.expressions_registry import REGISTRY, Translation

AREAS = (
    expressions_core,
    expressions_logic,
    expressions_math,
    expressions_numbers,
    expressions_strict_math,
    expressions_casts,
    expressions_strings,
    expressions_texts,
    expressions_patterns,
    expressions_times,
    expressions_calendar,
    expressions_hashes,
    expressions_bitmaps,
    expressions_collections,
    expressions_lambdas,
    expressions_json,
    expressions_csv,
    expressions_avro,
)
"""The modules that fill the registry."""


def translate(
    tree: JavaTree, ordinals: Mapping[int, int], conf: SessionConf, fields: Mapping[int, Sequence[int]] | None = None
) -> Expression:
    """Compile one resolved, optimised Catalyst expression.

    Args:
        tree: the expression; an ``Alias`` is looked through.
        ordinals: exprId of every attribute that it may read -> position of that column in the batches.
        conf: the session's settings; what an expression says itself (``evalMode``, ``timeZoneId``) goes first.
        fields: exprId of every attribute that has only some of its struct's fields -> their ordinals; None: none has.

    Raises:
        NotSupported: a class is not registered, or this use of it is not; it is named with its SQL text and, where
            there is one, the way round.
    """
    return Translation(ordinals, conf, fields or {})(tree)


def documentation() -> str:
    """The text of ``docs/expressions.md``: the registry as tables."""
    lines = [
        "# Expressions",
        "",
        "Generated from the registry (`python -m penstock.planner.expressions`). Every class below is compared with",
        "Catalyst on edge values in `tests/expressions`, under ANSI and legacy mode; everything else is refused at",
        "`start()`, by name. Types: atomic types without collations, unless a limit says otherwise.",
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
