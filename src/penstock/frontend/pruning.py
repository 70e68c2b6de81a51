"""Which columns of a plan's leaf the nodes above it need."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.frontend.catalyst import JavaTree, elements, expr_id, ids_in, kind

_NARROWING = ("Project", "Aggregate")
_PASSING = (
    "Filter",
    "EventTimeWatermark",
    "ArrowEvalPython",
    "BatchEvalPython",
    "Repartition",
    "RepartitionByExpression",
)
"""Nodes that yield the columns they name only, and nodes that hand all their columns on."""


def needed_columns(output: Sequence[JavaTree], above: Sequence[JavaTree]) -> list[JavaTree]:
    """Those of the leaf's attributes that are read; at least one, so that rows can be counted.

    Args:
        output: the leaf's attributes.
        above: the nodes over it, nearest first.
    """
    needed: set[int] = set()
    for node in above:
        needed.update(identity for item in elements(node.expressions()) for identity in ids_in(item))
        if kind(node) in _NARROWING:
            return [attribute for attribute in output if expr_id(attribute) in needed] or list(output[:1])
        if kind(node) not in _PASSING:
            break
    return list(output)
