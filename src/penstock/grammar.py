"""Grammars of the texts in messages that are read from a location: each is declared here once.

A stored message may be forged. Most of its texts become names of files, parts of names of files, or keys by which
something is removed. The types here are those of the messages' fields, so that decoding a message checks them.
Constructing a message checks nothing. No pattern can backtrack over more than the bounded part that it names.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

_QUERY = r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}"
_PART = r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9_.-]{1,100}"
"""One name between slashes, neither ``.`` nor ``..``."""
_DIRECTORY = r"[^/\0=]{1,255}=[^/\0]{1,255}"
"""A directory of a partition, ``column=value``."""
_SUFFIXES = r"(?:\.[a-z0-9_]{1,20}){1,4}"
FINAL_NAME = rf"part-\d{{5,10}}-{_QUERY}-e\d{{10}}-c\d{{3,9}}{_SUFFIXES}"
"""The name of a file that a writer of a file sink ended: see ``file_sink_plan.final_name``."""
STAGED_NAME = r"g\d{1,16}-[0-9a-f]{1,64}-\d{1,10}-\d{1,10}\.[a-z]{1,20}"
"""The name of a file that a writer stages: Generation, token of the slot, subtask, count, format."""

FenceToken = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{32}\Z")]
"""The token of a driver that opened a fence: the name of its work directory."""
LogToken = Annotated[str, msgspec.Meta(max_length=100)]
"""The token of an entry of a location's log: compared, and nothing else."""
QueryId = Annotated[str, msgspec.Meta(pattern=rf"\A{_QUERY}\Z")]
OriginId = Annotated[str, msgspec.Meta(pattern=rf"\A(?:{_QUERY})?\Z")]
"""A query's id, or nothing."""
REFUSAL = ", which a later release of Penstock runs: use that release"
OwnerText = Annotated[str, msgspec.Meta(pattern=rf"\A{_QUERY}(?:{REFUSAL})?\Z")]
"""A query's id, or what releases that know only format 1 of ``owner.json`` show when they refuse the directory."""
OperatorName = Annotated[str, msgspec.Meta(pattern=rf"\A(?:{_PART}/){{0,4}}{_PART}\Z", max_length=300)]
"""The stable id of an operator, source or sink."""
Fingerprint = Annotated[str, msgspec.Meta(pattern=r"\A(?:[0-9a-f]{8})?\Z")]
"""The fingerprint of a format of files, see ``FileFormat.fingerprint``; the first release's messages have none."""
StagedPath = Annotated[str, msgspec.Meta(pattern=rf"\A_penstock/(?:forks/{_QUERY}/)?staged/{STAGED_NAME}\Z")]
"""A file that a file sink staged, relative to the output directory."""
Columns = Annotated[str, msgspec.Meta(pattern=r"\A(?:\{[^\0]*\})?\Z", max_length=1 << 20)]
"""The JSON of a schema, or nothing; ``row_columns`` reads it."""
StagedFileName = Annotated[str, msgspec.Meta(pattern=rf"\A{STAGED_NAME}\Z")]
FinalPath = Annotated[str, msgspec.Meta(pattern=rf"\A(?:{_DIRECTORY}/){{0,64}}{FINAL_NAME}\Z", max_length=4096)]
"""Where such a file becomes visible, relative to the output directory."""
TablePath = Annotated[
    str, msgspec.Meta(pattern=rf"\A(?:{_DIRECTORY}/){{0,64}}[^/\0._][^/\0]{{0,254}}\Z", max_length=4096)
]
"""A file that Spark wrote for a table, relative to the directory of its epoch."""
PythonName = Annotated[str, msgspec.Meta(pattern=r"\A[\w-]{1,200}(?:\.[\w-]{1,200}){0,50}\Z")]
"""A module, or a class in it."""
