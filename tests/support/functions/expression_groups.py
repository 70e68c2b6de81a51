"""All cases by group, and the relation that each group reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tests.support.functions import avro_messages
from tests.support.functions import expression_cases_avro as avro
from tests.support.functions import expression_cases_calendar as calendar
from tests.support.functions import expression_cases_codes as codes
from tests.support.functions import expression_cases_collections as collections
from tests.support.functions import expression_cases_csv as csv
from tests.support.functions import expression_cases_json as json
from tests.support.functions import expression_cases_numbers as numbers
from tests.support.functions import expression_cases_patterns as patterns
from tests.support.functions import expression_cases_small as small
from tests.support.functions import expression_cases_texts as texts
from tests.support.functions import expression_cases_time_patterns as time_patterns
from tests.support.functions import expression_cases_times as times
from tests.support.functions import expression_relations as edges
from tests.support.functions import expression_relations_codes as coded
from tests.support.functions import expression_relations_csv as lines
from tests.support.functions import expression_relations_intervals as intervals
from tests.support.functions import expression_relations_json as documents
from tests.support.functions import expression_relations_nested as nested
from tests.support.functions import expression_relations_urls as urls
from tests.support.functions import expression_relations_written as written


@dataclass(frozen=True)
class Group:
    """``both_modes`` is False where cases do not depend on the mode."""

    relation: Callable[[], pa.Table]
    cases: Sequence[str]
    both_modes: bool = True


GROUPS = {
    "arithmetic": Group(edges.numbers, numbers.ARITHMETIC),
    "comparisons": Group(edges.numbers, numbers.COMPARISONS, both_modes=False),
    "logic": Group(edges.numbers, numbers.LOGIC),
    "decimals": Group(edges.numbers, numbers.DECIMALS_CASES),
    "number casts": Group(edges.numbers, numbers.CASTS),
    "divisions of decimals": Group(edges.numbers, numbers.DIVISIONS),
    "rounding": Group(edges.numbers, numbers.ROUNDS),
    "functions of numbers": Group(edges.numbers, numbers.FUNCTIONS),
    "strict math": Group(edges.numbers, numbers.STRICT_MATH, both_modes=False),
    "hashes of numbers": Group(edges.numbers, numbers.HASHES, both_modes=False),
    "guards": Group(edges.numbers, numbers.GUARDS),
    "strings": Group(edges.texts, texts.STRINGS),
    "patterns": Group(edges.texts, texts.PATTERNS),
    "string arrays and hashes": Group(edges.texts, texts.OTHERS),
    "numerals": Group(edges.numerals, texts.NUMERALS),
    "letters": Group(edges.letters, texts.LETTERS, both_modes=False),
    "time parts": Group(edges.instants, times.PARTS),
    "time casts": Group(edges.instants, times.CASTS),
    "time sums": Group(edges.instants, times.SUMS),
    "time sequences": Group(edges.instants, times.SEQUENCES),
    "local time": Group(edges.inner_instants, times.PARTS + times.CASTS + times.SUMS + times.ZONED, both_modes=False),
    "windows": Group(edges.known_instants, times.WINDOWS),
    "arrays": Group(nested.collections, collections.ARRAYS, both_modes=False),
    "places in arrays": Group(nested.collections, collections.PLACES),
    "array sets": Group(nested.collections, collections.SETS, both_modes=False),
    "maps": Group(nested.collections, collections.MAPS),
    "nested values": Group(nested.collections, collections.NESTED, both_modes=False),
    "nested casts": Group(nested.collections, collections.NESTED_CASTS),
    "hashes": Group(nested.collections, collections.HASHES, both_modes=False),
    "lambdas": Group(nested.collections, collections.LAMBDAS),
    "moments": Group(edges.moments, times.MOMENTS),
    "times written by pattern": Group(edges.inner_instants, time_patterns.WRITTEN, both_modes=False),
    "times read by pattern": Group(written.written_times, time_patterns.READ),
    "calendar fields": Group(written.calendar_fields, calendar.FIELDS),
    "year-month intervals": Group(edges.instants, calendar.YEAR_MONTHS),
    "spans": Group(edges.instants, calendar.SPANS),
    "local spans": Group(edges.inner_instants, calendar.SPANS, both_modes=False),
    "intervals of texts": Group(intervals.interval_texts, intervals.SUMS_OF_TEXTS, both_modes=False),
    "intervals of numbers": Group(intervals.interval_numbers, intervals.SUMS_OF_NUMBERS),
    "regular expressions": Group(edges.texts, patterns.PATTERNS, both_modes=False),
    "codes": Group(coded.codes, codes.CODES),
    "more of strings": Group(edges.texts, codes.TEXTS),
    "initials": Group(edges.letters, ["initcap(s)"], both_modes=False),
    "small ones of texts": Group(edges.texts, small.TEXTS, both_modes=False),
    "small ones that raise": Group(edges.texts, small.RAISING, both_modes=False),
    "small ones of codes": Group(coded.codes, small.CODES, both_modes=False),
    "small ones of numbers": Group(edges.numbers, small.NUMBERS),
    "urls": Group(urls.urls, codes.URLS),
    "csv of texts": Group(edges.texts, codes.CSV_OF_TEXTS, both_modes=False),
    "csv of fields": Group(coded.fields, codes.CSV_OF_FIELDS, both_modes=False),
    "csv of numbers": Group(edges.numbers, codes.CSV_OF_NUMBERS, both_modes=False),
    "csv of times": Group(edges.inner_instants, codes.CSV_OF_TIMES, both_modes=False),
    "avro read": Group(avro_messages.messages, avro.READ, both_modes=False),
    "avro read or raising": Group(avro_messages.messages, avro.RAISING, both_modes=False),
    "avro of numbers": Group(edges.numbers, avro.OF_NUMBERS, both_modes=False),
    "avro of texts": Group(edges.texts, avro.OF_TEXTS, both_modes=False),
    "avro of times": Group(edges.instants, avro.OF_TIMES, both_modes=False),
    "csv read": Group(lines.lines, csv.READ, both_modes=False),
    "csv read or raising": Group(lines.lines, csv.RAISING, both_modes=False),
    "csv fields": Group(lines.line_fields, csv.FIELDS, both_modes=False),
    "json taken apart": Group(documents.documents, json.TAKEN, both_modes=False),
    "json read": Group(documents.documents, json.READ),
    "json of numbers": Group(edges.numbers, json.OF_NUMBERS, both_modes=False),
    "json of texts": Group(edges.texts, json.OF_TEXTS, both_modes=False),
    "json of times": Group(edges.inner_instants, json.OF_TIMES, both_modes=False),
    "times read in zones": Group(written.written_times, time_patterns.READ_IN_ZONE, both_modes=False),
}
