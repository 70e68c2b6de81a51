"""Request files: how others ask the owner of a location to change something, and how they hear of it.

A request is three small envelopes below ``requests/``, by a random token: ``<token>.json`` (what is asked for),
``<token>.taken.json`` (who decided on it) and ``<token>.answer.json``. Whoever creates the second one has decided: the
owner, that it carries the request out, or the asker, that it does not wait any longer. So a request that was refused
because nobody answered is never carried out later. Nothing in these files is trusted: their sizes are bounded, and what
does not read as a request is refused.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec

from penstock.decoding import convert
from penstock.errors import LocationError
from penstock.grammar import FreeText
from penstock.model.manifest import MAX_LABEL, MAX_NOTE, Count, Ordinal
from penstock.snapshots.format.envelope import open_envelope, seal_envelope
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import Store

FOLDER = "requests"
FORMAT_VERSION = 1
WITH_FORMAT = 2
"""Of a request that names a format: releases that know only ``FORMAT_VERSION`` refuse it, and do not pass it over."""
MAX_BYTES = 64 << 10
"""Of one file; larger ones are not read."""
MAX_IDS = 100
"""Snapshots deleted by one request: each is an entry of the log, and the driver's next checkpoint waits for them."""
MAX_TIMEOUT_MS = 7 * 24 * 3600 * 1000
PATIENCE_S = 6.0
"""A driver looks for requests about once a second, behind what it is writing."""
ANSWER_S = 900.0
"""Once a request is taken in hand: a snapshot may need its whole ``checkpoint.timeout``."""
POLL_S = 0.1
LOG_POLL_S = 1.0
"""Between two looks into the log, where a driver says that it ended: nobody need wait for it then."""

REQUEST, TAKEN, ANSWER = ".json", ".taken.json", ".answer.json"
BY_OWNER, BY_ASKER = "owner", "asker"
_NAME = re.compile(rf"{FOLDER}/([0-9a-f]{{32}})(\.taken|\.answer)?\.json")
_T = TypeVar("_T")


class Take(msgspec.Struct, frozen=True, tag="take", omit_defaults=True):
    """Take a snapshot now. ``alignment``: empty for the query's own; ``timeout_ms``: 0 for ``checkpoint.timeout``;
    ``format``: empty for the query's own, ``snapshots.format``."""

    label: Annotated[str, msgspec.Meta(max_length=MAX_LABEL)] = ""
    note: Annotated[str, msgspec.Meta(max_length=MAX_NOTE)] = ""
    alignment: Annotated[str, msgspec.Meta(pattern="^(auto|aligned|unaligned)?$")] = ""
    timeout_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_TIMEOUT_MS)] = 0
    format: Annotated[str, msgspec.Meta(pattern="^(native|portable)?$")] = ""


class Delete(msgspec.Struct, frozen=True, tag="delete"):
    """Delete these snapshots, by checkpoint. One that does not exist any more is no error: it is gone."""

    checkpoints: Annotated[list[Ordinal], msgspec.Meta(min_length=1, max_length=MAX_IDS)]


class Collect(msgspec.Struct, frozen=True, tag="gc"):
    """Remove files that nothing refers to; with ``dry_run`` only tell of them."""

    dry_run: bool = False


class Label(msgspec.Struct, frozen=True, tag="label"):
    """Give a snapshot another label or note; empty: take it away; None: it stays as it is."""

    checkpoint: Ordinal
    label: Annotated[str, msgspec.Meta(max_length=MAX_LABEL)] | None = None
    note: Annotated[str, msgspec.Meta(max_length=MAX_NOTE)] | None = None


Change = Delete | Collect | Label
"""What others than a running query can carry out, too."""
Verb = Take | Change


class Request(msgspec.Struct, frozen=True):
    format_version: Count
    verb: Verb


def version_of(verb: Verb) -> int:
    """Which releases understand it."""
    return WITH_FORMAT if isinstance(verb, Take) and verb.format else FORMAT_VERSION


class Taken(msgspec.Struct, frozen=True):
    """``<token>.taken.json``."""

    by: FreeText


class Answer(msgspec.Struct, frozen=True):
    """``<token>.answer.json``: what was done, or in ``refusal`` why it was not.

    Attributes:
        snapshot: the id of the one that was taken or labelled.
        files: how many files were removed (with ``dry_run``: would be).
        bytes: what they occupied.
    """

    refusal: FreeText = ""
    snapshot: FreeText = ""
    files: Count = 0
    bytes: Count = 0


def path_of(token: str, kind: str) -> str:
    return f"{FOLDER}/{token}{kind}"


def tokens_in(paths: list[str]) -> dict[str, set[str]]:
    """By token, which of its files there are; what is not named so is nobody's."""
    found: dict[str, set[str]] = {}
    for path in paths:
        if match := _NAME.fullmatch(path):
            found.setdefault(match[1], set()).add(f"{match[2] or ''}.json")
    return found


def put(store: Store, token: str, kind: str, body: Request | Taken | Answer) -> bool:
    """Create one of the files of a request; False if it exists. Raises OSError."""
    return store.create_if_absent(path_of(token, kind), seal_envelope(msgspec.to_builtins(body)))


def read(store: Store, token: str, kind: str, shape: type[_T]) -> _T:
    """Read one of the files of a request.

    Raises:
        FileNotFoundError: there is none.
        LocationError: it is not what it has to be.
    """
    path = path_of(token, kind)
    size = store.size(path)
    if size is None:
        raise FileNotFoundError(path)
    if size > MAX_BYTES:
        raise LocationError(f"{path} has {size} bytes, more than {MAX_BYTES}")
    try:
        body: Any = open_envelope(store.read(path), path)
        return convert(body, shape)
    except FileNotFoundError:
        raise
    except (msgspec.ValidationError, OSError) as error:
        raise LocationError(f"{path} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:  # numbers without end, brackets without end
        raise LocationError(f"{path} cannot be read: {type(error).__name__}") from error


def remove(store: Store, token: str) -> None:
    """The request first: without it nobody carries anything out."""
    for kind in (REQUEST, TAKEN, ANSWER):
        store.delete(path_of(token, kind))


def ask(
    store: Store,
    verb: Verb,
    token: str,
    *,
    patience_s: float = PATIENCE_S,
    answer_s: float = ANSWER_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Answer | None:
    """Ask the owner, and wait for its answer.

    Args:
        token: 32 random hex digits.
        patience_s: until the request is taken in hand.
        answer_s: from then on.

    Returns:
        None: nobody took it in hand, and nobody will: in time, or because the owner has ended meanwhile.

    Raises:
        LocationError: the owner took it in hand and did not answer in time; the log is damaged.
        OSError: the store fails.
    """
    try:
        # If it fails, it may be there: it is withdrawn, too.
        put(store, token, REQUEST, Request(version_of(verb), verb))
        log, look_s = SnapshotLog(store), clock() + LOG_POLL_S
        give_up_s, in_hand = clock() + patience_s, False
        while not store.exists(path_of(token, ANSWER)):
            if not in_hand and clock() >= look_s:
                look_s = clock() + LOG_POLL_S
                if log.refresh().ended:
                    give_up_s = clock()
            if clock() < give_up_s:
                sleep(POLL_S)
            elif in_hand:
                raise LocationError(
                    f"a driver took the request in hand, but has not answered within {answer_s:.0f} s: it may still "
                    "carry it out; `penstock snapshot list` tells"
                )
            elif put(store, token, TAKEN, Taken(BY_ASKER)):
                return None
            else:
                give_up_s, in_hand = clock() + answer_s, True
        return read(store, token, ANSWER, Answer)
    finally:
        _withdraw(store, token)


def _withdraw(store: Store, token: str) -> None:
    """What the owner has in hand and not answered yet it clears away itself, later."""
    decided_here = put(store, token, TAKEN, Taken(BY_ASKER))
    if decided_here or store.exists(path_of(token, ANSWER)) or _taken_by(store, token) == BY_ASKER:
        remove(store, token)
    else:
        store.delete(path_of(token, REQUEST))


def _taken_by(store: Store, token: str) -> str:
    try:
        return read(store, token, TAKEN, Taken).by
    except (FileNotFoundError, LocationError):
        return ""
