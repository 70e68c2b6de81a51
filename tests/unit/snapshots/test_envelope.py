"""Envelopes: intact whatever their layout, refused once anything in them has changed."""

from __future__ import annotations

import json

import pytest

from penstock.errors import CorruptSnapshot
from penstock.snapshots.format.envelope import digest, exceeds_value_limit, open_envelope, seal_envelope, sealed_body

BODY = {"name": 'a "quoted" ,"checksum": ü', "rows": [1, -2, 3.5, None, True], "nested": {"b": 1, "a": {}}}


def test_a_sealed_body_comes_back() -> None:
    assert open_envelope(seal_envelope(BODY), "file") == BODY


@pytest.mark.parametrize("indent", [None, 2])
def test_an_envelope_that_was_laid_out_anew_is_intact(indent: int | None) -> None:
    again = json.dumps(json.loads(seal_envelope(BODY)), indent=indent, sort_keys=False).encode()
    assert again != seal_envelope(BODY)
    assert open_envelope(again, "file") == BODY
    assert sealed_body(again, "file") == sealed_body(seal_envelope(BODY), "file")


def test_brackets_in_a_text_are_no_values() -> None:
    body = {"note": '\\"[{,' * (2 << 20)}
    assert open_envelope(seal_envelope(body), "x") == body


def test_json_that_would_take_far_more_memory_is_not_decoded() -> None:
    for data in (b"[]," * (2 << 20), b'{"":0},' * (2 << 20), b"1," * (8 << 20), b'"a",[{' * (1 << 20)):
        assert exceeds_value_limit(data)
    assert not exceeds_value_limit(b"[]," * 1000)
    assert not exceeds_value_limit(b'{"path":"data/1-1-0.arrows","offset":1234567},' * (1 << 20))


def test_every_changed_byte_is_refused() -> None:
    sealed = seal_envelope(BODY)
    for position in range(len(sealed) - 1):  # the newline at its end is layout
        changed = bytearray(sealed)
        changed[position] ^= 1
        with pytest.raises(CorruptSnapshot, match="file"):
            open_envelope(bytes(changed), "file")


@pytest.mark.parametrize("cut", [0, 1, 20, -2, -40])
def test_a_part_of_one_is_refused(cut: int) -> None:
    with pytest.raises(CorruptSnapshot, match="file"):
        open_envelope(seal_envelope(BODY)[:cut], "file")


@pytest.mark.parametrize("body", [b"", b"{", b"NaN", b"1e999", b'"\\ud800"', b'{"body":1}}', b"[" * 9999])
def test_a_checksum_of_what_is_no_json_is_no_excuse(body: bytes) -> None:
    sealed = b'{"body":%s,"checksum":"%s"}\n' % (body, digest(body).encode())
    with pytest.raises(CorruptSnapshot, match="file is not JSON"):
        open_envelope(sealed, "file")
