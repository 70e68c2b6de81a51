"""Comparisons, boolean logic and conditionals."""

from __future__ import annotations

import pyarrow as pa

from penstock.catalyst.trees import JavaTree, arrow_type, children, kind, option
from penstock.functions import Expression, Literal
from penstock.functions.core.plan import literal_value
from penstock.functions.core.ragged import as_type
from penstock.functions.logic.comparison import (
    Comparison,
    Extreme,
    InList,
    InSet,
    NullSafeEqual,
)
from penstock.functions.logic.logic import And, CaseWhen, Coalesce, IsNaN, IsNull, NaNvl, Not, Or, RaiseError, TryEval
from penstock.functions.plan_registry import Translation, catalyst, refuse

COMPARISONS = "Comparisons"
CONDITIONS = "Logic and conditionals"

_SYMBOLS = {"EqualTo": "=", "LessThan": "<", "LessThanOrEqual": "<=", "GreaterThan": ">", "GreaterThanOrEqual": ">="}


@catalyst(
    "EqualTo", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual",
    area=COMPARISONS, forms="`=` `<` `<=` `>` `>=` `!=` `between`",
)  # fmt: skip
def comparison(tree: JavaTree, translation: Translation) -> Expression:
    left, right = translation.children(tree)
    return Comparison(_SYMBOLS[kind(tree)], left, right, bool(tree.nullable()))


@catalyst("EqualNullSafe", area=COMPARISONS, forms="`<=>`, `equal_null`")
def null_safe_equal(tree: JavaTree, translation: Translation) -> Expression:
    left, right = translation.children(tree)
    return NullSafeEqual(left, right)


@catalyst("In", area=COMPARISONS, forms="`in (...)`")
def in_list(tree: JavaTree, translation: Translation) -> Expression:
    value, *elements = translation.children(tree)
    if elements and all(isinstance(element, Literal) for element in elements):
        constants = [as_type(pa.repeat(e.scalar, 1), value.data_type) for e in elements if isinstance(e, Literal)]
        return InSet(value, pa.concat_arrays(constants))
    return InList(value, elements)


@catalyst("InSet", area=COMPARISONS, forms="`in (...)` with many constants")
def in_set(tree: JavaTree, translation: Translation) -> Expression:
    value = translation(tree.child())
    elements = tree.hset().toSeq()
    catalyst_type = tree.child().dataType()
    values = [literal_value(elements.apply(i), value.data_type, catalyst_type) for i in range(elements.size())]
    return InSet(value, pa.array(values, value.data_type))


@catalyst("Greatest", "Least", area=COMPARISONS, forms="`greatest`, `least`")
def extreme(tree: JavaTree, translation: Translation) -> Expression:
    operands = translation.children(tree)
    return Extreme(">" if kind(tree) == "Greatest" else "<", operands, arrow_type(tree))


@catalyst("And", area=CONDITIONS, forms="`and`")
def conjunction(tree: JavaTree, translation: Translation) -> Expression:
    return And(*translation.children(tree))


@catalyst("Or", area=CONDITIONS, forms="`or`")
def disjunction(tree: JavaTree, translation: Translation) -> Expression:
    return Or(*translation.children(tree))


@catalyst("Not", area=CONDITIONS, forms="`not`, `!=`")
def negation(tree: JavaTree, translation: Translation) -> Expression:
    return Not(translation.children(tree), pa.bool_(), bool(tree.nullable()))


@catalyst("IsNull", "IsNotNull", area=CONDITIONS, forms="`is null`, `is not null`")
def null_test(tree: JavaTree, translation: Translation) -> Expression:
    return IsNull(translation(tree.child()), kind(tree) == "IsNotNull")


@catalyst("IsNaN", area=CONDITIONS, forms="`isnan`")
def nan_test(tree: JavaTree, translation: Translation) -> Expression:
    return IsNaN(translation(tree.child()))


@catalyst("NaNvl", area=CONDITIONS, forms="`nanvl`")
def nan_default(tree: JavaTree, translation: Translation) -> Expression:
    return NaNvl(*translation.children(tree))


@catalyst("Coalesce", area=CONDITIONS, forms="`coalesce`, `nvl`, `ifnull`, `zeroifnull`")
def coalesce(tree: JavaTree, translation: Translation) -> Expression:
    return Coalesce(translation.children(tree), arrow_type(tree))


@catalyst("If", area=CONDITIONS, forms="`if`, `nullif`, `nvl2`")
def if_else(tree: JavaTree, translation: Translation) -> Expression:
    condition, value, otherwise = translation.children(tree)
    return CaseWhen([(condition, value)], otherwise, arrow_type(tree), bool(tree.nullable()))


@catalyst("CaseWhen", area=CONDITIONS, forms="`case when`, `F.when`")
def case_when(tree: JavaTree, translation: Translation) -> Expression:
    operands = translation.children(tree)
    has_else = option(tree.elseValue()) is not None
    pairs = operands[:-1] if has_else else operands
    branches = list(zip(pairs[::2], pairs[1::2], strict=True))
    otherwise = operands[-1] if has_else else None
    assert len(children(tree)) == 2 * len(branches) + has_else
    return CaseWhen(branches, otherwise, arrow_type(tree), bool(tree.nullable()))


@catalyst("RaiseError", area=CONDITIONS, forms="`raise_error`, `assert_true`")
def raise_error(tree: JavaTree, translation: Translation) -> Expression:
    """Compile ``raise_error``, whose arguments are the name of an error and a map of parameters.

    For an error that a user raises, the only parameter is the message.
    """
    error, parameters = children(tree)
    if str(error.toString()) != "USER_RAISED_EXCEPTION":
        refuse(tree, "only errors that a user raises are")
    if kind(parameters) == "CreateMap":
        return RaiseError(translation(children(parameters)[1]), arrow_type(tree))
    message = translation(parameters)
    assert isinstance(message, Literal)
    return RaiseError(Literal(dict(message.scalar.as_py())["errorMessage"], pa.string()), arrow_type(tree))


@catalyst("TryEval", area=CONDITIONS, forms="`try_...` of functions without a form of their own")
def try_eval(tree: JavaTree, translation: Translation) -> Expression:
    return TryEval(translation(tree.child()))
