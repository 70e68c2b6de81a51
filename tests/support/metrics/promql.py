"""Parser for the part of PromQL that shows which metrics an expression uses, and how."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

FUNCTIONS = {
    "avg", "count", "max", "min", "sum", "topk",
    "deriv", "histogram_quantile", "increase", "predict_linear", "rate", "time", "vector",
}  # fmt: skip
"""Those that are used here; others are added when they are needed."""
OPERATORS = {"and", "or", "unless", "bool", "offset"}
GROUPINGS = {"by", "without", "on", "ignoring", "group_left", "group_right"}
OVER_TIME = {"increase", "rate", "deriv", "predict_linear"}
"""Functions that want a range."""

_TOKEN = re.compile(
    r"""(?P<space>\s+)|(?P<text>"(?:[^"\\]|\\.)*")|(?P<range>\[[^\]]+\])|(?P<number>\d+(?:\.\d+)?)
    |(?P<name>[a-zA-Z_:][\w:]*)|(?P<sign>==|!=|>=|<=|=~|!~|[-+*/%^<>=(){},])""",
    re.VERBOSE,
)


@dataclass
class Use:
    """A metric in an expression. ``within``: the function directly around it, or empty."""

    metric: str
    within: str
    labels: set[str] = field(default_factory=set)
    ranged: bool = False


@dataclass
class Expression:
    """``grouped``: the labels of its groupings."""

    uses: list[Use]
    grouped: set[str]


def read(text: str) -> Expression:
    """Raises ValueError for what it does not know: a character, a function, a parenthesis that is not closed."""
    tokens = _tokens(text)
    found = Expression([], set())
    around: list[str] = []
    position = 0
    while position < len(tokens):
        kind, token = tokens[position]
        following = tokens[position + 1][1] if position + 1 < len(tokens) else ""
        if kind == "name" and token in GROUPINGS:
            position, labels = _between(tokens, position + 1, "(", ")")
            found.grouped |= {name for kind, name in labels if kind == "name"}
        elif kind == "name" and token in FUNCTIONS:
            if following not in ("(", *GROUPINGS):
                raise ValueError(f"{token} calls nothing in {text}")
            around.append(token)
            position += following == "("
        elif kind == "name" and token not in OPERATORS:
            if following == "(":
                raise ValueError(f"{token} is no known function in {text}")
            use = Use(token, around[-1] if around else "")
            position = _selector(tokens, position + 1, use)
            found.uses.append(use)
            continue
        elif token == "(" and not (around and _opens(tokens, position)):
            around.append("")
        elif token == ")":
            if not around:
                raise ValueError(f"one ) too many in {text}")
            around.pop()
        elif kind == "range" or token in "{}":
            raise ValueError(f"{token} belongs to nothing in {text}")
        position += 1
    if around:
        raise ValueError(f"{len(around)} parentheses are not closed in {text}")
    return found


def _opens(tokens: list[tuple[str, str]], position: int) -> bool:
    """Return True if this ( belongs to a function with a grouping in between: ``sum by (x) (``."""
    return position > 0 and tokens[position - 1][1] == ")" and _grouping_ends(tokens, position - 1)


def _grouping_ends(tokens: list[tuple[str, str]], position: int) -> bool:
    while tokens[position][1] != "(":
        position -= 1
    return position > 0 and tokens[position - 1][1] in ("by", "without")


def _selector(tokens: list[tuple[str, str]], position: int, use: Use) -> int:
    """Behind a metric's name: its matchers and its range."""
    if position < len(tokens) and tokens[position][1] == "{":
        position, inside = _between(tokens, position, "{", "}")
        use.labels = {name for kind, name in inside if kind == "name"}
        position += 1
    if position < len(tokens) and tokens[position][0] == "range":
        use.ranged = True
        position += 1
    return position


def _between(tokens: list[tuple[str, str]], position: int, first: str, last: str) -> tuple[int, list[tuple[str, str]]]:
    """The position of ``last``, and what is between it and ``first``, which is at ``position``."""
    if position >= len(tokens) or tokens[position][1] != first:
        raise ValueError(f"{first} is missing")
    inside = []
    for end in range(position + 1, len(tokens)):
        if tokens[end][1] == last:
            return end, inside
        inside.append(tokens[end])
    raise ValueError(f"{last} is missing")


def _tokens(text: str) -> list[tuple[str, str]]:
    found, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise ValueError(f"{text[position]!r} is not PromQL in {text}")
        if match.lastgroup != "space":
            found.append((match.lastgroup, match[0]))
        position = match.end()
    return found
