"""Docstrings name parameters and attributes that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.support.places import ROOT

FILES = [
    path for folder in ("src", "simulator", "benchmarks", "tests/support") for path in (ROOT / folder).rglob("*.py")
]
SECTION = r"^{}:\n(.*?)(?=^\S|\Z)"
ENTRY = re.compile(r"^    (\*{0,2}\w+(?:, \*{0,2}\w+)*):", re.MULTILINE)


def test_documented_names_exist() -> None:
    stale = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {name}"
        for path in FILES
        for node, name in stale_names(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert stale == []


def stale_names(tree: ast.AST) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, str]]:
    """Yield names under ``Args:`` and ``Attributes:`` that the function, or the class, does not have."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            docstring = ast.get_docstring(node) or ""
            for name in documented(docstring, "Args"):
                if (taken := parameters(node)) is not None and name not in taken:
                    yield node, name
            if isinstance(node, ast.ClassDef) and not node.bases:
                for name in documented(docstring, "Attributes"):
                    if name not in attributes(node):
                        yield node, name


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> set[str] | None:
    """Return the names of the parameters; None for a class that inherits its constructor."""
    if isinstance(node, ast.ClassDef):
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name in ("__init__", "__new__"):
                return parameters(method)
        fields = {
            one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        }
        return None if node.bases else fields
    given = node.args
    several = [one for one in (given.vararg, given.kwarg) if one is not None]
    return {one.arg for one in [*given.posonlyargs, *given.args, *given.kwonlyargs, *several]}


def attributes(node: ast.ClassDef) -> set[str]:
    """Return the names of the class's fields, methods, and attributes of ``self``."""
    names = set()
    for one in ast.walk(node):
        match one:
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.FunctionDef(name=name):
                names.add(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                names.add(name)
    return names


def documented(docstring: str, section: str) -> list[str]:
    found = re.search(SECTION.format(section), docstring, re.MULTILINE | re.DOTALL)
    entries = [] if found is None else ENTRY.findall(found[1])
    return [name.strip().lstrip("*") for entry in entries for name in entry.split(",")]


@pytest.mark.parametrize(
    ("text", "stale"),
    [
        ("def f(a, *rest, b=0):\n    '''F.\n\n    Args:\n        a, b: x.\n        *rest: y.\n    '''", []),
        (
            "def f(a):\n    '''F.\n\n    Args:\n        a: x.\n        old: y.\n\n    Raises:\n        E: z.\n    '''",
            ["old"],
        ),
        ("class C:\n    '''C.\n\n    Args:\n        old: y.\n    '''\n    def __init__(self, new): ...", ["old"]),
        ("class C:\n    '''C.\n\n    Args:\n        old: y.\n    '''\n    new: int", ["old"]),
        ("class C:\n    '''C.\n\n    Attributes:\n        a: x.\n        old: y.\n    '''\n    a: int", ["old"]),
        ("class C(Base):\n    '''C.\n\n    Args:\n        inherited: y.\n    '''", []),
    ],
)
def test_stale_names_are_found(text: str, stale: list[str]) -> None:
    assert [name for _, name in stale_names(ast.parse(text))] == stale
