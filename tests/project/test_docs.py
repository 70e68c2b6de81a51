"""The documentation says what the code says now: generated parts, and names of modules, classes and methods."""

from __future__ import annotations

import pkgutil
import re

import pytest

from docs.__main__ import PROTOCOL, generated
from docs.state_diagrams import LIFECYCLES, with_diagrams
from penstock.errors import ConfigError
from penstock.protocol.lifecycle import Lifecycle


def test_generated_parts_are_those_of_the_code() -> None:
    page = PROTOCOL.read_text()
    assert generated(page) == page, "run: python -m docs"
    assert "<!-- messages -->" in page
    assert set(re.findall(r"<!-- diagram: (\w+) -->", page)) == set(LIFECYCLES)
    assert page.count("```mermaid\nstateDiagram-v2\n    [*] --> none") == len(LIFECYCLES)


def test_an_unknown_diagram_is_named() -> None:
    with pytest.raises(ConfigError, match="there is no diagram 'moon'"):
        with_diagrams("<!-- diagram: moon -->\n<!-- end -->")


@pytest.mark.parametrize("name", sorted(LIFECYCLES))
def test_every_state_of_a_lifecycle_is_reached_from_its_start(name: str) -> None:
    lifecycle: Lifecycle[object] = LIFECYCLES[name]  # type: ignore[type-var]
    reached, waiting = {lifecycle.start}, [lifecycle.start]
    while waiting:
        state = waiting.pop()
        for transition in lifecycle.transitions:
            if transition.source == state and transition.target not in reached:
                reached.add(transition.target)
                waiting.append(transition.target)
    assert reached == set(type(lifecycle.start))  # type: ignore[call-overload]


@pytest.mark.parametrize("walk", ["buffer", "barrier"])
def test_the_walks_name_what_exists(walk: str) -> None:
    page = PROTOCOL.with_name("architecture.md").read_text()
    text = page.split(f"## The walk of a {walk}\n")[1].split("\n## ")[0]
    names = re.findall(r"`((?:\w+\.)+\w+)`", text)
    assert len(names) >= 15
    for name in names:
        assert pkgutil.resolve_name(f"penstock.{name}") is not None
    with pytest.raises(AttributeError):
        pkgutil.resolve_name("penstock.worker.subtask.Subtask.fly")
