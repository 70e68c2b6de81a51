"""Search for regular expressions of a package whose time grows faster than the text, with adversarial strings."""

from __future__ import annotations

import ast
import importlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHORT, LONG = 500, 4_000
"""Repetitions. What is linear takes 8 times as long, what is quadratic 64 times."""
RATIO = 24.0
LEAST_S = 0.002
"""Times below this one are not compared: they are within the noise of the clock."""
_CALLS = {"compile", "match", "fullmatch", "search", "sub", "subn", "findall", "finditer", "split"}
_EVERYWHERE = {"search", "sub", "subn", "findall", "finditer", "split"}
"""Methods that try a match at every position of a string."""


@dataclass(frozen=True)
class Pattern:
    """A regular expression and its place in the code. ``anywhere``: it is searched at every position."""

    where: str
    text: str | bytes
    flags: int
    anywhere: bool


@dataclass(frozen=True)
class Unknown:
    """A pattern that depends on values other than constants of its module."""

    where: str
    source: str


def patterns_of(package: Path, name: str) -> Iterator[Pattern | Unknown]:
    """Return all patterns that the modules of a package pass to ``re`` or declare as ``pattern`` of a field."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(package.rglob("*.py"))}
    searched = {
        node.func.value.id if isinstance(node.func.value, ast.Name) else node.func.value.attr
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _EVERYWHERE
        and isinstance(node.func.value, ast.Name | ast.Attribute)
    }
    for path, tree in trees.items():
        parts = path.relative_to(package).with_suffix("").parts
        module = ".".join([name, *(part for part in parts if part != "__init__")])
        names = {
            id(node.value): target.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            found = _pattern_in(node)
            if found is None:
                continue
            text, flags, method = found
            where = f"{path.relative_to(package)}:{node.lineno}"  # type: ignore[attr-defined]
            anywhere = method in _EVERYWHERE or method == "pattern" or names.get(id(node)) in searched
            scope = vars(importlib.import_module(module))
            try:
                values = [_value(one, scope) for one in (text, flags)]
            except NameError:
                yield Unknown(where, ast.unparse(text))
                continue
            yield Pattern(where, values[0], int(values[1]), anywhere)


def _pattern_in(node: ast.AST) -> tuple[ast.expr, ast.expr, str] | None:
    """Return the expressions of a pattern and of its flags, and the called function."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
        return None
    keywords = {keyword.arg: keyword.value for keyword in node.keywords}
    of_re = (
        isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
    )
    if of_re and isinstance(node.func, ast.Attribute) and node.func.attr in _CALLS and node.args:
        place = {"compile": 1, "sub": 4, "subn": 4, "split": 3}.get(node.func.attr, 2)
        flags = node.args[place] if len(node.args) > place else keywords.get("flags", ast.Constant(0))
        return node.args[0], flags, node.func.attr
    called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
    if called in ("Meta", "Field", "Query", "Path") and "pattern" in keywords:
        return keywords["pattern"], ast.Constant(0), "pattern"
    return None


def _value(expression: ast.expr, scope: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(ast.fix_missing_locations(expression)), "<pattern>", "eval"), scope)


# -- adversarial strings -----------------------------------------------------------------------------------------------


def attacks(text: str | bytes, flags: int) -> Iterator[Callable[[int], Any]]:
    """Return functions from a number of repetitions to a string: a start that matches, the body of one repetition many
    times, and an end that does not match."""
    is_bytes = isinstance(text, bytes)
    tree = re._parser.parse(text, flags)  # type: ignore[attr-defined]
    seen = set()
    for beginning, bodies in _repetitions(list(tree), [""]):
        # Many starts: each of them begins a match if the pattern is searched.
        for head, body in [*((beginning, body) for body in bodies), ("", beginning)]:
            for end in ("\0", "!", ""):
                if (head, body, end) not in seen and body:
                    seen.add((head, body, end))

                    def make(count: int, parts: tuple[str, str, str] = (head, body, end)) -> Any:
                        made = parts[0] + parts[1] * count + parts[2]
                        return made.encode("latin-1", "replace") if is_bytes else made

                    yield make


def _repetitions(items: list[Any], before: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each repetition of a parsed pattern: a sample of the part before it, and samples of its body."""
    for kind, value in items:
        name = str(kind)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            least, most, body = value
            samples = _samples(list(body))
            if most > 100:
                yield from ((one, samples) for one in before[:3])
            yield from _repetitions(list(body), before[:2])
            before = [one + sample for one in before[:3] for sample in _repeated(least, samples)[:3]]
            continue
        for inner in _inner(name, value):
            yield from _repetitions(inner, before[:2])
        before = [one + sample for one in before[:3] for sample in _samples([(kind, value)])[:3]]


def _inner(name: str, value: Any) -> list[list[Any]]:
    match name:
        case "SUBPATTERN":
            return [list(value[3])]
        case "BRANCH":
            return [list(one) for one in value[1]]
        case "ASSERT" | "ASSERT_NOT":
            return [list(value[1])]
        case "ATOMIC_GROUP":
            return [list(value)]
    return []


def _samples(items: list[Any]) -> list[str]:
    """Return a few strings that match."""
    made = [""]
    for kind, value in items:
        match str(kind):
            case "LITERAL":
                ones = [chr(value)]
            case "NOT_LITERAL":
                ones = ["a" if value != ord("a") else "b"]
            case "ANY":
                ones = ["a"]
            case "IN":
                ones = _of_class(value)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                ones = _repeated(value[0], _samples(list(value[2])))
            case "SUBPATTERN":
                ones = _samples(list(value[3]))
            case "ATOMIC_GROUP":
                ones = _samples(list(value))
            case "BRANCH":
                ones = [sample for one in value[1] for sample in _samples(list(one))[:2]]
            case _:
                ones = [""]
        made = [head + one for head in made[:4] for one in ones[:6]]
    return made


def _repeated(least: int, samples: list[str]) -> list[str]:
    return [sample * least for sample in samples] if least else [*samples[:1], "", *samples[1:]]


_CATEGORIES = {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "a"}


def _of_class(items: list[Any]) -> list[str]:
    if str(items[0][0]) == "NEGATE":
        listed = {one for item in items[1:] for one in _of_class([item])}
        return [next(one for one in "a1 ./:x" if one not in listed)]
    found = []
    for kind, value in items:
        match str(kind):
            case "LITERAL":
                found.append(chr(value))
            case "RANGE":
                found.append(chr(value[0]))
            case "CATEGORY":
                found.append(_CATEGORIES.get(str(value), "!"))
    return found


# -- how the time grows ------------------------------------------------------------------------------------------------


def grows_too_fast(pattern: Pattern) -> str:
    """Return the description of a string for which the time grows faster than its length; empty if there is none."""
    compiled = re.compile(pattern.text, pattern.flags)
    uses: list[Callable[[Any], object]] = [compiled.match, compiled.fullmatch]
    if pattern.anywhere:
        uses.append(lambda text: sum(1 for _ in compiled.finditer(text)))
    for make in attacks(pattern.text, pattern.flags):
        for use in uses:
            long = _time_s(use, make(LONG))
            if long > LEAST_S and min(_growth(use, make) for _ in range(3)) > RATIO:
                made = make(SHORT)
                return f"{made[:20]!r}...{made[-5:]!r}"
    return ""


def _growth(use: Callable[[Any], object], make: Callable[[int], Any]) -> float:
    short, long = make(SHORT), make(LONG)
    return _time_s(use, long) / max(min(_time_s(use, short) for _ in range(3)), 1e-6)


def _time_s(use: Callable[[Any], object], text: Any) -> float:
    begin = time.thread_time()
    use(text)
    return time.thread_time() - begin
