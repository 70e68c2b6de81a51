"""Structures of Thrift's compact protocol: their values, and data that is damaged."""

from __future__ import annotations

import pytest

from penstock.thrift_compact import LIST, MAX_NESTING, CompactReader, EndOfData, natural

EVERY_TYPE = bytes.fromhex(
    "15 03"  # field 1: -2
    "11"  # field 2: true
    "13 7f"  # field 3: a byte
    "17 0000000000000000"  # field 4: a double
    "18 02 6162"  # field 5: two bytes
    "29 21 01 02"  # field 7: list of two booleans
    "1b 01 85 01 61 02"  # field 8: map of a text to 1
    "1b 00"  # field 9: empty map
    "1c 16 80 01 00"  # field 10: structure with 64 in field 1
    "06 c8 01 02"  # field 100: 1
    "19 2c 15 02 00 00"  # field 101: list of two structures
    "00"
)


def test_numbers_and_structures_are_read_and_the_rest_is_skipped() -> None:
    reader = CompactReader(EVERY_TYPE + b"behind it")
    expected = {1: -2, 2: None, 3: None, 4: None, 5: None, 7: None, 8: None, 9: None, 10: {1: 64}, 100: 1, 101: None}
    assert reader.structure() == expected
    assert reader.at == len(EVERY_TYPE)
    kept = CompactReader(EVERY_TYPE, keep_lists=True).structure()
    assert kept == {**expected, 7: [None, None], 101: [{1: 1}, {}]}


@pytest.mark.parametrize("length", range(len(EVERY_TYPE)))
@pytest.mark.parametrize("keep_lists", [False, True])
def test_data_that_was_cut_off_has_no_end(length: int, keep_lists: bool) -> None:
    with pytest.raises(EndOfData):
        CompactReader(EVERY_TYPE[:length], keep_lists=keep_lists).structure()


@pytest.mark.parametrize("level", [b"\x1c", b"\x19\x1c", b"\x19\x19\x1c", b"\x1b\x01\xcc"])
def test_nesting_is_limited(level: bytes) -> None:
    with pytest.raises(ValueError, match="nested too deep"):
        CompactReader(level * (MAX_NESTING + 1)).structure()


@pytest.mark.parametrize("data", [b"\x15" + b"\xff" * 11, b"\x1d\x00", b"\x1e\x00", b"\x1f\x00"])
def test_what_the_protocol_does_not_have_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"without an end|no type"):
        CompactReader(data).structure()


def test_a_list_of_structures_is_counted() -> None:
    assert CompactReader(b"\x2c\x00\x00").count_structures(LIST) == 2
    assert CompactReader(b"\x05").count_structures(LIST) == 0
    for kind, data in ((LIST, b"\x25\x00\x00"), (5, b"\x02")):
        with pytest.raises(ValueError, match="type 5 where a list of structures"):
            CompactReader(data).count_structures(kind)
    with pytest.raises(EndOfData):
        CompactReader(b"\xfc\xff\xff\xff\xff\x07\x00").count_structures(LIST)


def test_natural_numbers() -> None:
    assert (natural({1: 3}, 1), natural({}, 1, 7)) == (3, 7)
    for wrong in (-1, None, {}, []):
        with pytest.raises(ValueError, match="where a natural number is expected"):
            natural({1: wrong}, 1)
    with pytest.raises(ValueError, match="None where"):
        natural({}, 1)
