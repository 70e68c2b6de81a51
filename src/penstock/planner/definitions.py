"""Texts of attributes and expressions that are the same at every start of a query.

State is valid only with the expressions that it was built with: a key determines the rows of a group, a window its
length. So a plan stores these texts (``OperatorSpec.parameters``), and a restart compares them. Catalyst's own text is
not suitable: it has expression ids and the names of projected columns, and it lacks time zones.

The text of an attribute that is computed between the source and the state is its expression. The text of a Python
function is its name, because its body may change.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from penstock.catalyst.trees import JavaTree, children, expr_id, kind

_MAX_TEXT = 300
"""Number of characters of a text. A longer text, for example of a key with many cases, ends with a digest."""
_IDS = re.compile(r"#\d+L?")
_VARIABLE = re.compile(r"\x00(\d+)\x00")
"""A lambda variable. Its name is not used, because it has a number that grows with every lambda of the session."""
_COSMETIC = frozenset(
    {
        *("class", "num-children", "nullable", "metadata", "exprId", "qualifier", "resultId", "jvmId"),
        *("evalContext", "evalMode", "ansiEnabled", "failOnError", "nullOnOverflow", "nullOnDivideByZero"),
        *("mutableAggBufferOffset", "inputAggBufferOffset", "aggregateFunction", "mode", "filter", "replacement"),
    }
)
"""Fields that do not change the result of a successful expression, or that repeat its children."""
_OF_TIME = frozenset({"timestamp", "timestamp_ntz", "date", "time"})
_OPERATORS = {
    "Add": "+",
    "And": "AND",
    "Divide": "/",
    "EqualNullSafe": "<=>",
    "EqualTo": "=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "Multiply": "*",
    "Or": "OR",
    "Remainder": "%",
    "Subtract": "-",
}
_WINDOW_WRAPPERS = ("KnownNullable", "PreciseTimestampConversion")
"""Expressions around the start and end of a window. They change types, not values."""
_DAY_US = 86_400_000_000
_UNITS_US = (("day", _DAY_US), ("hour", 3_600_000_000), ("minute", 60_000_000), ("second", 1_000_000))


@dataclass(frozen=True)
class _Node:
    """An expression from ``TreeNode.toJSON``."""

    fields: Mapping[str, Any]
    children: Sequence[_Node]

    @property
    def name(self) -> str:
        return str(self.fields["class"]).rpartition(".")[2]

    def walk(self) -> Iterator[_Node]:
        yield self
        for child in self.children:
            yield from child.walk()


def _parse(tree: JavaTree) -> _Node:
    """Parse an expression with one call to the JVM. A struct takes one call per field.

    The JVM sends an answer of more than 8 kB in two packets, with Nagle's algorithm, and the second one arrives 40 ms
    later (github.com/py4j/py4j/issues/516). The struct that the analyzer makes of a window has 16 kB.
    """
    if kind(tree) == "CreateNamedStruct":
        return _Node({"class": ".CreateNamedStruct"}, list(map(_parse, children(tree))))
    pending = iter(json.loads(str(tree.toJSON())))

    def read() -> _Node:
        fields = next(pending)
        return _Node(fields, [read() for _ in range(fields["num-children"])])

    return read()


def _parse_part(tree: JavaTree, name: str) -> _Node:
    """Parse an expression and wrap a function of this name around it."""
    return _Node({"class": f".{name}"}, [_parse(tree)])


class Definitions:
    """Definitions of attributes, by expression id. An attribute without one is a column of the source."""

    def __init__(self) -> None:
        self._defined: dict[int, list[Callable[[], _Node]]] = {}
        self._labels: dict[int, str] = {}
        self._resolving: set[int] = set()

    def label(self, attributes: Sequence[JavaTree], prefix: str) -> None:
        """Prefix the names of these source columns, because the other side of a join may have the same names."""
        self._labels |= {expr_id(attribute): f"{prefix}{attribute.name()}" for attribute in attributes}

    def define(self, attribute: JavaTree, *alternatives: JavaTree, part: str = "") -> None:
        """Define an attribute by an expression, or by several alternatives if rows arrive by several paths.

        Later definitions are added to earlier ones. ``part``: name of the part of the expression's result.
        """
        own = expr_id(attribute)
        others = [tree for tree in alternatives if kind(tree) != "AttributeReference" or expr_id(tree) != own]
        parse = partial(_parse_part, name=part) if part else _parse
        self._defined.setdefault(own, []).extend(cache(partial(parse, tree)) for tree in others)

    def text(self, expression: JavaTree) -> str:
        """Return the expression over columns of the source, with at most a few hundred characters."""
        return _bounded(self._text(_parse(expression)))

    def conjunction(self, conditions: Sequence[JavaTree]) -> str:
        """Return all conditions, sorted because the optimizer may reorder them; ``none`` if there are none."""
        return _bounded(" AND ".join(sorted(self._text(_parse(one)) for one in conditions)) or "none")

    def columns(self, expression: JavaTree) -> str:
        """Return the columns of the source in an expression."""
        return _bounded(self._columns(_parse(expression)))

    def function(self, expression: JavaTree) -> str:
        """Return an aggregate function with its constants and, for each other argument, the argument's columns.

        The expression of such an argument may change between starts. The state of a DISTINCT function has the values of
        its arguments, so their whole expressions are in the text.
        """
        call = _parse(expression)

        def argument(node: _Node) -> str:
            return self._columns(node) if _reads(node) and not call.fields["isDistinct"] else self._text(node)

        return _bounded(self._call(call, argument, self._columns))

    def _call(self, call: _Node, argument: Callable[[_Node], str], condition: Callable[[_Node], str]) -> str:
        function, *conditions = call.children
        parts = [*map(argument, function.children), *self._fields(function)]
        text = f"{function.name.lower()}({'DISTINCT ' if call.fields['isDistinct'] else ''}{', '.join(parts)})"
        return text + "".join(f" where {condition(one)}" for one in conditions)

    def _columns(self, node: _Node) -> str:
        return "{" + ", ".join(sorted(set(self._leaves(node)))) + "}"

    def _leaves(self, node: _Node) -> Iterator[str]:
        for one in node.walk():
            if one.name == "AttributeReference":
                with self._alternatives(one) as alternatives:
                    if not alternatives:
                        yield self._name(one)
                    for alternative in alternatives:
                        yield from self._leaves(alternative)

    def _name(self, attribute: _Node) -> str:
        name = _IDS.sub("", str(attribute.fields["name"]))
        return self._labels.get(int(attribute.fields["exprId"]["id"]), name)

    @contextmanager
    def _alternatives(self, attribute: _Node) -> Iterator[list[_Node]]:
        """Return the definitions of an attribute while it is resolved. There are none if it is being resolved already.

        Two sides of a self-join with unions can define two attributes by each other. Both are columns of the source.
        """
        number = int(attribute.fields["exprId"]["id"])
        if number in self._resolving:
            yield []
            return
        self._resolving.add(number)
        try:
            yield [parse() for parse in self._defined.get(number, ())]
        finally:
            self._resolving.remove(number)

    def _text(self, node: _Node) -> str:
        name = node.name
        if name == "AttributeReference":
            return self._attribute(node)
        if name == "Literal":
            return _literal(node)
        if name == "Alias":
            return self._text(node.children[0])
        if name == "PythonUDF":
            return f"{node.fields['name']}({', '.join(map(self._text, node.children))})"
        if name == "AggregateExpression":
            return self._call(node, self._text, self._text)
        if name == "NamedLambdaVariable":
            return f"\0{node.fields['exprId']['id']}\0"
        window = self._window(node)
        if window is not None:
            return window
        parts = [self._text(child) for child in node.children]
        if name == "Cast":
            target, *zone = self._fields(node)
            return f"cast({parts[0]} as {' '.join([target.removeprefix('dataType='), *zone])})"
        if name in _OPERATORS and len(parts) == 2:
            return f"({parts[0]} {_OPERATORS[name]} {parts[1]})"
        return f"{name.lower()}({', '.join([*parts, *self._fields(node)])})"

    def _attribute(self, node: _Node) -> str:
        texts: dict[str, None] = {}
        with self._alternatives(node) as alternatives:
            for alternative in alternatives:
                window = self._window(alternative)
                if window is not None:
                    return window  # a row is in many sliding windows, which all have the same text
                texts[self._text(alternative)] = None
        return " | ".join(texts) or self._name(node)

    def _fields(self, node: _Node) -> Iterator[str]:
        """Yield the texts of an expression's fields other than its children."""
        child = 0  # fields refer to children by number, in order
        for field, value in node.fields.items():
            if field in _COSMETIC or value is None or value == []:
                continue
            if field == "timeZoneId":
                if _is_by_time_zone(node):
                    yield f"in {value}"
                continue
            numbers = _numbers(value)
            if numbers and numbers == list(range(child, child + len(numbers))) and numbers[-1] < len(node.children):
                child += len(numbers)
                continue
            yield f"{field}={json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else value}"

    def _window(self, node: _Node) -> str | None:
        """Return the text of a ``window`` or ``session_window`` that the analyzer has expanded; None otherwise."""
        if node.name != "CreateNamedStruct" or len(node.children) != 4 or not all(map(_is_moment, node.children[1::2])):
            return None
        start, end = (_without(moment, _WINDOW_WRAPPERS) for moment in node.children[1::2])
        if end.name in ("TimestampAddInterval", "TimeAdd"):
            time, gap = end.children
            return f"session_window({self._text(_without(time, _WINDOW_WRAPPERS))}, {self._text(gap)})"
        if end.name != "Add" or start.name != "Subtract" or start.children[0].name != "Subtract":
            return None
        slides = [one for one in start.children[0].children[1].walk() if one.name == "Remainder"]
        if not slides or slides[0].children[0].name != "Subtract":
            return None
        shifted, slide = slides[0].children
        numbers = end.children[1], slide, shifted.children[1]
        if not all(map(_is_long, numbers)):
            return None
        moment = self._text(_without(shifted.children[0], _WINDOW_WRAPPERS))
        return f"window({', '.join([moment, *map(_duration, numbers)])})"


def _reads(node: _Node) -> bool:
    return any(one.name == "AttributeReference" for one in node.walk())


def _numbers(value: object) -> list[int]:
    """Return the integers in a field, also in lists and tuples; no integers if it has anything else."""
    if isinstance(value, bool):
        return []
    if isinstance(value, int):
        return [value]
    parts = value if isinstance(value, list) else []
    if isinstance(value, dict) and str(value.get("product-class", "")).startswith("scala.Tuple"):
        parts = [part for name, part in value.items() if name != "product-class"]
    found = [_numbers(part) for part in parts]
    return [number for part in found for number in part] if all(found) else []


def _without(node: _Node, wrappers: Sequence[str]) -> _Node:
    while node.name in wrappers:
        node = node.children[0]
    return node


def _is_moment(node: _Node) -> bool:
    """Return True for the start or end of a window. Only Spark adds the outermost expression of these."""
    outermost = node.children[0] if node.name == "KnownNullable" else node
    return outermost.name == "PreciseTimestampConversion"


def _is_long(node: _Node) -> bool:
    return node.name == "Literal" and str(node.fields["value"]).lstrip("-").isdigit()


def _duration(literal: _Node) -> str:
    """Return a number of microseconds as text, in the largest unit that divides it."""
    value = int(literal.fields["value"])
    unit, size = next(((unit, size) for unit, size in _UNITS_US if value and value % size == 0), ("microsecond", 1))
    count = value // size
    return f"{count} {unit}{'' if count == 1 else 's'}"


def _literal(node: _Node) -> str:
    value = node.fields.get("value")
    if value is None:
        return "null"
    data_type = node.fields["dataType"]
    if not isinstance(data_type, str):
        return f"{value}:{json.dumps(data_type)}"
    if data_type.startswith("interval") and "year" not in data_type and "month" not in data_type and _is_long(node):
        return _duration(node)
    return repr(value) if data_type == "string" else str(value)


def _is_by_time_zone(node: _Node) -> bool:
    """Return True if the result may depend on the session's time zone. The input type of a cast is not always known."""
    if node.name == "TimestampAddInterval":
        interval = node.children[1]
        return not _is_long(interval) or abs(int(interval.fields["value"])) >= _DAY_US
    if node.name != "Cast":
        return True
    before, after = node.children[0].fields.get("dataType"), node.fields["dataType"]
    if isinstance(before, str) and before not in _OF_TIME:
        return isinstance(after, str) and after in _OF_TIME
    return True


def _bounded(text: str) -> str:
    variables = list(dict.fromkeys(_VARIABLE.findall(text)))
    text = _VARIABLE.sub(lambda match: f"x{variables.index(match[1])}", text)
    if len(text) <= _MAX_TEXT:
        return text
    return f"{text[:_MAX_TEXT]}... ({hashlib.sha256(text.encode()).hexdigest()[:16]})"
