"""Untrusted JSON with many small lists is refused before it is decoded: three bytes become a list of 64 bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.connectors.python.commit_messages import decode_message
from penstock.errors import LocationError, SinkError
from penstock.interop.spark_checkpoint.logs import read_checkpoint

BRACKETS = b"[" + b"[]," * (2 << 20) + b"[]]"


def test_a_commit_message() -> None:
    with pytest.raises(SinkError, match="epoch 7 is none that Penstock wrote: it holds too many values"):
        decode_message(b'{"kind":"dataclass","fields":' + BRACKETS + b"}", b"k" * 32, "query", 7)


def test_a_log_of_a_spark_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_bytes(b'{"id":' + BRACKETS + b"}")
    (tmp_path / "commits").mkdir()
    (tmp_path / "offsets").mkdir()
    with pytest.raises(LocationError, match=r"metadata.* too many values for its size"):
        read_checkpoint(str(tmp_path))
