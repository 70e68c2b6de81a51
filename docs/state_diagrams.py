"""State diagrams of the lifecycles in the code.

A page marks their places with ``<!-- diagram: NAME -->`` ... ``<!-- end -->``.
"""

from __future__ import annotations

import re
from typing import Any

from penstock.coordinator.machines import checkpoint_lifecycle
from penstock.errors import ConfigError
from penstock.protocol import alignment
from penstock.protocol.lifecycle import Lifecycle

LIFECYCLES: dict[str, Lifecycle[Any]] = {"subtask": alignment.LIFECYCLE, "checkpoint": checkpoint_lifecycle.LIFECYCLE}

_PLACE = re.compile(r"<!-- diagram: (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def with_diagrams(page: str) -> str:
    """Return the page with every diagram as the code has it now.

    Raises:
        ConfigError: the page wants a diagram that does not exist.
    """

    def drawn(place: re.Match[str]) -> str:
        lifecycle = LIFECYCLES.get(place[1])
        if lifecycle is None:
            raise ConfigError(f"there is no diagram {place[1]!r}; there are {', '.join(LIFECYCLES)}")
        return f"<!-- diagram: {place[1]} -->\n```mermaid\n{lifecycle.mermaid()}\n```\n<!-- end -->"

    return _PLACE.sub(drawn, page)
