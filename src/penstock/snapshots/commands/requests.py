"""Request files: a process asks the owner of a location for a change through them, and gets the answer.

A request consists of three small envelopes below ``requests/``, named by a random token: ``<token>.json`` (the
command), ``<token>.taken.json`` (the claim) and ``<token>.answer.json``. The claim is exclusive: either the owner
claims the request and carries it out, or the requester claims it and stops waiting. So a request that was not claimed
in time is never carried out later. Nothing in these files is trusted: their sizes are bounded, and invalid requests are
refused.
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
VERSION_WITH_FORMAT = 2
"""Version of a request that names a snapshot format. Releases that know only version 1 refuse it."""
MAX_BYTES = 64 << 10
"""Maximum size of one file in bytes. Larger files are not read."""
MAX_IDS = 100
"""Maximum number of snapshots per request. Each is a log entry, and the driver's next checkpoint waits for them."""
MAX_TIMEOUT_MS = 7 * 24 * 3600 * 1000
CLAIM_TIMEOUT_S = 6.0
"""Seconds until a request must be claimed. A driver polls for requests about once a second, after its own writes."""
ANSWER_TIMEOUT_S = 900.0
"""Seconds from the claim to the answer. A snapshot may take its whole ``checkpoint.timeout``."""
POLL_S = 0.1
LOG_POLL_S = 1.0
"""Seconds between two reads of the log, which record whether the driver has ended."""

REQUEST, CLAIM, ANSWER = ".json", ".taken.json", ".answer.json"
BY_OWNER, BY_REQUESTER = "owner", "asker"
_NAME = re.compile(rf"{FOLDER}/([0-9a-f]{{32}})(\.taken|\.answer)?\.json")
_T = TypeVar("_T")


class TakeSnapshot(msgspec.Struct, frozen=True, tag="take", omit_defaults=True):
    """Take a snapshot now. Empty or 0 means the query's own setting: ``checkpoint.timeout``, ``snapshots.format``."""

    label: Annotated[str, msgspec.Meta(max_length=MAX_LABEL)] = ""
    note: Annotated[str, msgspec.Meta(max_length=MAX_NOTE)] = ""
    alignment: Annotated[str, msgspec.Meta(pattern="^(auto|aligned|unaligned)?$")] = ""
    timeout_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_TIMEOUT_MS)] = 0
    format: Annotated[str, msgspec.Meta(pattern="^(native|portable)?$")] = ""


class DeleteSnapshots(msgspec.Struct, frozen=True, tag="delete"):
    """Delete snapshots by checkpoint. Snapshots that no longer exist are skipped."""

    checkpoints: Annotated[list[Ordinal], msgspec.Meta(min_length=1, max_length=MAX_IDS)]


class CollectOrphans(msgspec.Struct, frozen=True, tag="gc"):
    """Remove files that nothing refers to. With ``dry_run`` only count them."""

    dry_run: bool = False


class LabelSnapshot(msgspec.Struct, frozen=True, tag="label"):
    """Set the label or note of a snapshot. An empty text removes it; None keeps it."""

    checkpoint: Ordinal
    label: Annotated[str, msgspec.Meta(max_length=MAX_LABEL)] | None = None
    note: Annotated[str, msgspec.Meta(max_length=MAX_NOTE)] | None = None


Change = DeleteSnapshots | CollectOrphans | LabelSnapshot
"""Commands that a process other than the driver can carry out, too."""
Command = TakeSnapshot | Change


class Request(msgspec.Struct, frozen=True):
    format_version: Count

    command: Command = msgspec.field(name="verb")


def version_of(command: Command) -> int:
    """Return the format version of a request with this command."""
    return VERSION_WITH_FORMAT if isinstance(command, TakeSnapshot) and command.format else FORMAT_VERSION


class Claim(msgspec.Struct, frozen=True):
    """Claim of a request: ``<token>.taken.json``."""

    by: FreeText


class Answer(msgspec.Struct, frozen=True):
    """Result of a request, ``<token>.answer.json``. A non-empty ``refusal`` is the reason why the request was refused.

    Attributes:
        snapshot: id of the snapshot that was taken or labeled.
        files: number of files that were removed, or with ``dry_run`` would be removed.
        bytes: total size of these files.
    """

    refusal: FreeText = ""
    snapshot: FreeText = ""
    files: Count = 0
    bytes: Count = 0


def request_path(token: str, kind: str) -> str:
    return f"{FOLDER}/{token}{kind}"


def files_by_token(paths: list[str]) -> dict[str, set[str]]:
    """Return the kinds of files that exist, by token. Other files are skipped."""
    found: dict[str, set[str]] = {}
    for path in paths:
        if match := _NAME.fullmatch(path):
            found.setdefault(match[1], set()).add(f"{match[2] or ''}.json")
    return found


def create_file(store: Store, token: str, kind: str, body: Request | Claim | Answer) -> bool:
    """Create one of the files of a request. Return False if it exists. Raises OSError."""
    return store.create_if_absent(request_path(token, kind), seal_envelope(msgspec.to_builtins(body)))


def read_file(store: Store, token: str, kind: str, shape: type[_T]) -> _T:
    """Read one of the files of a request.

    Raises:
        FileNotFoundError: the file does not exist.
        LocationError: the content is not valid.
    """
    path = request_path(token, kind)
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
    except (ValueError, RecursionError) as error:  # Numbers of unbounded length, or unbounded nesting.
        raise LocationError(f"{path} cannot be read: {type(error).__name__}") from error


def remove_files(store: Store, token: str) -> None:
    """Remove the files of a request. The request comes first: without it, no driver carries anything out."""
    for kind in (REQUEST, CLAIM, ANSWER):
        store.delete(request_path(token, kind))


def ask(
    store: Store,
    command: Command,
    token: str,
    *,
    claim_timeout_s: float = CLAIM_TIMEOUT_S,
    answer_timeout_s: float = ANSWER_TIMEOUT_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Answer | None:
    """Send a command to the owner and wait for its answer.

    Args:
        token: 32 random hex digits.
        claim_timeout_s: seconds until the request must be claimed.
        answer_timeout_s: seconds from the claim to the answer.

    Returns:
        The answer; None if no driver claimed the request in time or the owner has ended. The command is never carried
        out then.

    Raises:
        LocationError: the owner claimed the request and did not answer in time, or the log is damaged.
        OSError: the store fails.
    """
    try:
        # A failed write may still have created the file, so the request is withdrawn in this case, too.
        create_file(store, token, REQUEST, Request(version_of(command), command))
        log, next_log_read_s = SnapshotLog(store), clock() + LOG_POLL_S
        deadline_s, is_claimed = clock() + claim_timeout_s, False
        while not store.exists(request_path(token, ANSWER)):
            if not is_claimed and clock() >= next_log_read_s:
                next_log_read_s = clock() + LOG_POLL_S
                if log.refresh().ended:
                    deadline_s = clock()
            if clock() < deadline_s:
                sleep(POLL_S)
            elif is_claimed:
                raise LocationError(
                    f"a driver took the request in hand, but has not answered within {answer_timeout_s:.0f} s: "
                    "it may still carry it out; `penstock snapshot list` tells"
                )
            elif create_file(store, token, CLAIM, Claim(BY_REQUESTER)):
                return None
            else:
                deadline_s, is_claimed = clock() + answer_timeout_s, True
        return read_file(store, token, ANSWER, Answer)
    finally:
        _withdraw(store, token)


def _withdraw(store: Store, token: str) -> None:
    """Remove the files of the request.

    If the owner has claimed the request, remove only the request itself: the owner removes the other files.
    """
    claimed_here = create_file(store, token, CLAIM, Claim(BY_REQUESTER))
    if claimed_here or store.exists(request_path(token, ANSWER)) or _claimed_by(store, token) == BY_REQUESTER:
        remove_files(store, token)
    else:
        store.delete(request_path(token, REQUEST))


def _claimed_by(store: Store, token: str) -> str:
    try:
        return read_file(store, token, CLAIM, Claim).by
    except (FileNotFoundError, LocationError):
        return ""
