"""Analysis of a join's condition: equalities between the sides are keys, the rest is evaluated for pairs of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from penstock.catalyst.trees import JavaTree, attributes_in, children, expr_id, kind
from penstock.functions import Expression, SessionConf
from penstock.functions.logic.logic import And
from penstock.functions.plan import translate
from penstock.operators.join.pairs import PairCondition

_EQUALITIES = {"EqualTo": False, "EqualNullSafe": True}
"""Catalyst's class -> True if null equals null."""

Ordinals = Mapping[int, int]


@dataclass(frozen=True)
class Equality:
    """One equality of a join. ``first`` reads only the first side, ``second`` only the second one."""

    first: JavaTree
    second: JavaTree
    null_safe: bool


@dataclass(frozen=True)
class Sides:
    """Columns of both sides' attributes, by expression id."""

    first: Ordinals
    second: Ordinals
    conf: SessionConf

    def equality(self, conjunct: JavaTree) -> Equality | None:
        """Return the equality if the conjunct is one between the sides, and each operand reads columns of one side."""
        if kind(conjunct) not in _EQUALITIES:
            return None
        one, other = children(conjunct)
        for first, second in ((one, other), (other, one)):
            if reads_only(first, self.first) and reads_only(second, self.second):
                return Equality(first, second, _EQUALITIES[kind(conjunct)])
        return None

    def pair_condition(self, conjuncts: Sequence[JavaTree]) -> PairCondition | None:
        """Return the conjunction of these, over the columns that they read of both sides; None if there are none."""
        if not conjuncts:
            return None
        read = list(dict.fromkeys(expr_id(a) for conjunct in conjuncts for a in attributes_in(conjunct)))
        first = [identity for identity in read if identity in self.first]
        second = [identity for identity in read if identity in self.second]
        ordinals = {identity: at for at, identity in enumerate([*first, *second])}
        return PairCondition(
            tuple(self.first[identity] for identity in first),
            tuple(self.second[identity] for identity in second),
            all_of([translate(conjunct, ordinals, self.conf) for conjunct in conjuncts]),
        )


def conjuncts_of(node: JavaTree) -> list[JavaTree]:
    """Return the conjuncts of a ``Join``'s condition."""
    return list(_conjuncts(node.condition().get())) if node.condition().isDefined() else []


def _conjuncts(condition: JavaTree) -> Iterable[JavaTree]:
    if kind(condition) == "And":
        for child in children(condition):
            yield from _conjuncts(child)
    else:
        yield condition


def all_of(conditions: Sequence[Expression]) -> Expression:
    """Combine one or more conditions with AND."""
    return reduce(And, conditions)


def reads_only(expression: JavaTree, side: Ordinals) -> bool:
    """Return True if the expression reads columns, and all of them are of this side."""
    read = [expr_id(attribute) for attribute in attributes_in(expression)]
    return bool(read) and all(identity in side for identity in read)
