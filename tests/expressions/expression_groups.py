"""All cases by group, and the relation that each group reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import expression_cases_numbers as numbers
import pyarrow as pa
from expression_relations import numbers as number_edges


@dataclass(frozen=True)
class Group:
    """``ansi_only``: cases that legacy mode types differently or refuses in analysis."""

    relation: Callable[[], pa.Table]
    cases: Sequence[str]
    ansi_only: Collection[str] = ()


GROUPS = {
    "arithmetic": Group(number_edges, numbers.ARITHMETIC),
    "comparisons": Group(number_edges, numbers.COMPARISONS),
    "logic": Group(number_edges, numbers.LOGIC),
    "decimals": Group(number_edges, numbers.DECIMALS_CASES),
    "number casts": Group(number_edges, numbers.CASTS),
    "guards": Group(number_edges, numbers.GUARDS),
}
