"""All cases by group, and the relation that each group reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import expression_cases_numbers as numbers
import expression_cases_texts as texts
import expression_cases_times as times
import expression_relations as edges
import pyarrow as pa


@dataclass(frozen=True)
class Group:
    """``ansi_only``: cases that legacy mode types differently or refuses in analysis."""

    relation: Callable[[], pa.Table]
    cases: Sequence[str]
    ansi_only: Collection[str] = ()


GROUPS = {
    "arithmetic": Group(edges.numbers, numbers.ARITHMETIC),
    "comparisons": Group(edges.numbers, numbers.COMPARISONS),
    "logic": Group(edges.numbers, numbers.LOGIC),
    "decimals": Group(edges.numbers, numbers.DECIMALS_CASES),
    "number casts": Group(edges.numbers, numbers.CASTS),
    "guards": Group(edges.numbers, numbers.GUARDS),
    "strings": Group(edges.texts, texts.STRINGS),
    "patterns": Group(edges.texts, texts.PATTERNS),
    "string arrays and hashes": Group(edges.texts, texts.OTHERS),
    "numerals": Group(edges.numerals, texts.NUMERALS),
    "letters": Group(edges.letters, texts.LETTERS),
    "time parts": Group(edges.instants, times.PARTS),
    "time casts": Group(edges.instants, times.CASTS),
    "time sums": Group(edges.instants, times.SUMS),
    "local time parts": Group(edges.inner_instants, times.PARTS),
    "local time casts": Group(edges.inner_instants, times.CASTS),
    "local time sums": Group(edges.inner_instants, times.SUMS),
    "windows": Group(edges.known_instants, times.WINDOWS),
    "moments": Group(edges.moments, times.MOMENTS),
}
