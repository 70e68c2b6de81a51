"""Every registered expression equals Catalyst's own, bit for bit, on edge values, in both modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from expression_groups import GROUPS

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("ansi", [True, False], ids=["ansi", "legacy"])
@pytest.mark.parametrize("group", GROUPS)
def test_equal_to_catalyst(compare: Callable[..., list[str]], group: str, ansi: bool) -> None:
    differences = compare(group, ansi)
    assert not differences, f"{len(differences)} differences\n" + "\n".join(differences[:40])
