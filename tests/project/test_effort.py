"""Cases that ``make test`` leaves out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support import effort


def cases(name: str, count: int, number: int | None) -> list[pytest.Item]:
    mark = None if number is None else pytest.mark.one_in(number).mark
    items: list[Any] = [
        SimpleNamespace(nodeid=f"{name}[{case}]", get_closest_marker=lambda _name: mark) for case in range(count)
    ]
    return cast("list[pytest.Item]", items)


def test_one_case_in_so_many_stays_of_each_marked_test(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [*cases("a", 7, 3), *cases("b", 2, 3), *cases("c", 4, None)]
    monkeypatch.setattr(effort, "FULL", False)
    names = effort.left_out(items)
    assert {name: sum(other.startswith(name) for other in names) for name in "abc"} == {"a": 4, "b": 1, "c": 0}
    assert effort.left_out(items[::-1]) == names
    monkeypatch.setattr(effort, "FULL", True)
    assert effort.left_out(items) == set()
