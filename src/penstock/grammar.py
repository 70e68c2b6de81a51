"""Grammars of the texts in messages that are read from a location. Each grammar is declared once, here.

A stored message may be forged. Most of its texts become file names, parts of file names, or keys of files to remove.
The types here are the types of the messages' fields. They are checked when a message is decoded, but not when it is
constructed. Each repetition that a pattern can backtrack over has an upper bound.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

_QUERY = r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}"
_PART = r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9_.-]{1,100}"
"""One part of a path, neither ``.`` nor ``..``."""
_DIRECTORY = r"[^/\0=]{1,255}=[^/\0]{1,255}"
"""Directory of a partition, ``column=value``."""
_SUFFIXES = r"(?:\.[a-z0-9_]{1,20}){1,4}"
FINAL_NAME = rf"part-\d{{5,10}}-{_QUERY}-e\d{{10}}-c\d{{3,9}}{_SUFFIXES}"
"""Name of a visible file of a file sink: see ``connectors.files.sink_plan.final_name``."""
STAGED_NAME = r"g\d{1,16}-[0-9a-f]{1,64}-\d{1,10}-\d{1,10}\.[a-z]{1,20}"
"""Name of a staged file: generation, token of the slot, subtask, count, format."""

FenceToken = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{32}\Z")]
"""Token of a driver that opened a fence. Its work directory has this name."""
LogToken = Annotated[str, msgspec.Meta(max_length=100)]
"""Token of an entry of a location's log. It is only compared."""
TokenStem = Annotated[str, msgspec.Meta(max_length=100)]
"""Start of a ``LogToken``. It is only compared."""
MarkToken = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{32}\Z")]
"""Token of the mark at the target of a move."""
FreeText = Annotated[str, msgspec.Meta(max_length=1 << 24)]
"""Text that is compared or displayed. Files named after it use ``portable.layout.safe_file_name``."""
PositionName = Annotated[str, msgspec.Meta(pattern=r"\A\d{1,16}-[0-9A-Za-z]{0,8}\Z")]
"""Name of an entry of a location's log: its number and the beginning of its token."""
QueryId = Annotated[str, msgspec.Meta(pattern=rf"\A{_QUERY}\Z")]
OriginId = Annotated[str, msgspec.Meta(pattern=rf"\A(?:{_QUERY})?\Z")]
"""A query's id, or the empty string."""
REFUSAL = ", which a later release of Penstock runs: use that release"
OwnerText = Annotated[str, msgspec.Meta(pattern=rf"\A{_QUERY}(?:{REFUSAL})?\Z")]
"""A query's id. ``REFUSAL`` may follow: releases that know only format 1 of ``owner.json`` print it in their error."""
OPERATOR_NAME_LENGTH = 300
OperatorName = Annotated[
    str, msgspec.Meta(pattern=rf"\A(?:{_PART}/){{0,149}}{_PART}\Z", max_length=OPERATOR_NAME_LENGTH)
]
"""Stable id of an operator, source, sink or exchange. In front of a join or union it has two more parts."""
Fingerprint = Annotated[str, msgspec.Meta(pattern=r"\A(?:[0-9a-f]{8})?\Z")]
"""Fingerprint of a file format, see ``FileFormat.fingerprint``. It is empty in messages of the first release."""
StagedPath = Annotated[str, msgspec.Meta(pattern=rf"\A_penstock/(?:forks/{_QUERY}/)?staged/{STAGED_NAME}\Z")]
"""Path of a file that a file sink staged, relative to the output directory."""
Columns = Annotated[str, msgspec.Meta(pattern=r"\A(?:\{[^\0]*\})?\Z", max_length=1 << 20)]
"""Schema as JSON, or the empty string. ``row_columns`` parses it."""
StagedFileName = Annotated[str, msgspec.Meta(pattern=rf"\A{STAGED_NAME}\Z")]
FinalPath = Annotated[str, msgspec.Meta(pattern=rf"\A(?:{_DIRECTORY}/){{0,64}}{FINAL_NAME}\Z", max_length=4096)]
"""Path of a visible file of a file sink, relative to the output directory."""
TablePath = Annotated[
    str, msgspec.Meta(pattern=rf"\A(?:{_DIRECTORY}/){{0,64}}[^/\0._][^/\0]{{0,254}}\Z", max_length=4096)
]
"""Path of a file that Spark wrote for a table, relative to the directory of its epoch."""
PythonName = Annotated[str, msgspec.Meta(pattern=r"\A[\w-]{1,200}(?:\.[\w-]{1,200}){0,50}\Z")]
"""Name of a module, or of a module and a class in it."""
TOPIC = r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}"
"""Name of a topic, by Kafka's own rule."""
MAX_PARTITION = 2**31 - 1
KafkaTopic = Annotated[str, msgspec.Meta(pattern=rf"\A{TOPIC}\Z")]
KafkaPartition = Annotated[int, msgspec.Meta(ge=0, le=MAX_PARTITION)]
KafkaOffset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
