"""A quick run of what ``make fuzz-format`` does at length: the whole corpus, and mutations of it without a guide."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS, attempt
from tests.support.effort import some

CORPUS = Path(__file__).parent / "corpus"
NUMBERS = [
    b"-1",
    b"0",
    b"18446744073709551616",
    b"1e999",
    b"null",
    b'"x"',
    b"[]",
    b"{}",
    b"\xff\xff\xff\x7f",
    b"\0" * 8,
]


def seeds(target: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPUS / target).iterdir())]


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_ends_in_errors_of_the_tree(target: str) -> None:
    ended = [attempt(TARGETS[target], data) for data in seeds(target)]
    assert ended
    assert None in ended, "something in it has to be whole, or nothing behind the first check is reached"


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=some(150), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_mutations_of_the_corpus_end_in_errors_of_the_tree(target: str, data: st.DataObject) -> None:
    attempt(TARGETS[target], mutated(data, seeds(target)))


def mutated(data: st.DataObject, whole: list[bytes]) -> bytes:
    """One of them with some bits flipped, cut, spliced with another one, or with numbers changed."""
    content = bytearray(data.draw(st.sampled_from(whole)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(len(content) - 1, 0)))
        how = data.draw(st.sampled_from(["flip", "cut", "splice", "number", "repeat", "remove"]))
        if how == "flip" and content:
            content[at] ^= 1 << data.draw(st.integers(0, 7))
        elif how == "cut":
            del content[at:]
        elif how == "splice":
            other = data.draw(st.sampled_from(whole))
            content[at:] = other[data.draw(st.integers(0, len(other))) :]
        elif how == "number":
            content[at : at + data.draw(st.sampled_from([0, 1, 4, 8]))] = data.draw(st.sampled_from(NUMBERS))
        elif how == "repeat":
            content[at:at] = content[at : at + 40] * data.draw(st.sampled_from([1, 100]))
        else:
            del content[at : at + data.draw(st.integers(1, 40))]
    return bytes(content)
