"""Request handler of the location's owner. It carries out each request file once and answers it."""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import Fenced, LocationError
from penstock.redaction import without_secrets
from penstock.snapshots.commands import requests as rq
from penstock.snapshots.commands.changes import apply_change
from penstock.snapshots.commands.owned_location import OwnedLocation
from penstock.snapshots.store.store import Store

MAX_REQUESTS = 16
"""Maximum number of requests per call. The driver's own log writes wait meanwhile."""
ANSWER_KEPT_MS = 600_000
"""Milliseconds after which the files of an answered request are removed, unless the requester has removed them."""
INTERRUPTED = "the driver that was asked for the snapshot has ended; `penstock snapshot list` tells whether it took it"


class RequestHandler:
    """Handler of request files. Only the driver's log executor may use it.

    Args:
        store: the location.
        wall_ms: returns the wall clock time in milliseconds.
    """

    def __init__(self, store: Store, wall_ms: Callable[[], int]) -> None:
        self._store = store
        self._wall_ms = wall_ms
        self._pending: set[str] = set()
        self._snapshot_requests: list[tuple[str, rq.TakeSnapshot]] = []
        self._answered_since_ms: dict[str, int] = {}

    def handle_requests(self, owned: OwnedLocation) -> tuple[tuple[str, rq.TakeSnapshot], ...]:
        """Carry out open requests.

        Return requests for new snapshots. They stay pending until ``answer_snapshot_request`` is called.

        Raises:
            Fenced: another driver owns the location. Requests that were carried out before stay carried out.
            OSError: the store fails. The next call continues.
        """
        found = rq.files_by_token(self._store.list(rq.FOLDER))
        open_ones = [token for token, files in found.items() if rq.REQUEST in files and rq.ANSWER not in files]
        waiting = [token for token in open_ones if token not in self._pending and token not in self._answered_since_ms]
        if waiting:
            owned.log.check_owned()
        for token in waiting[:MAX_REQUESTS]:
            self._handle(token, owned)
        self._remove_answered([token for token in found if token not in self._pending and token not in waiting])
        self._answered_since_ms = {token: since for token, since in self._answered_since_ms.items() if token in found}
        snapshot_requests, self._snapshot_requests = tuple(self._snapshot_requests), []
        return snapshot_requests

    @property
    def pending_tokens(self) -> tuple[str, ...]:
        """Tokens of snapshot requests without an answer."""
        return tuple(sorted(self._pending))

    def answer_snapshot_request(self, token: str, snapshot: str, refusal: str) -> None:
        """Answer a request that ``handle_requests`` has returned. Raises OSError."""
        self._pending.discard(token)
        rq.create_file(self._store, token, rq.ANSWER, rq.Answer(without_secrets(refusal), snapshot))

    def _handle(self, token: str, owned: OwnedLocation) -> None:
        """Claim one request and answer it, unless the requester has claimed it."""
        interrupted = not rq.create_file(self._store, token, rq.CLAIM, rq.Claim(rq.BY_OWNER))
        try:
            if interrupted and rq.read_file(self._store, token, rq.CLAIM, rq.Claim).by != rq.BY_OWNER:
                self._answered_since_ms.setdefault(token, self._wall_ms())
                return
            answer = self._carry_out(token, self._command(token), interrupted, owned)
        except Fenced:
            raise
        except FileNotFoundError:  # The requester has withdrawn the request meanwhile.
            self._store.delete(rq.request_path(token, rq.CLAIM))
            return
        except LocationError as refusal:
            answer = rq.Answer(without_secrets(str(refusal)))
        if answer is not None:
            rq.create_file(self._store, token, rq.ANSWER, answer)

    def _carry_out(self, token: str, command: rq.Command, interrupted: bool, owned: OwnedLocation) -> rq.Answer | None:
        """Carry out one request and return its answer; None for a snapshot request, which is answered later.

        An ``interrupted`` request was claimed by an earlier driver. All commands but ``TakeSnapshot`` may be repeated.
        """
        match command:
            case rq.TakeSnapshot() if interrupted:
                return rq.Answer(INTERRUPTED)
            case rq.TakeSnapshot():
                self._pending.add(token)
                self._snapshot_requests.append((token, command))
                return None
            case _:
                return apply_change(owned, command)

    def _command(self, token: str) -> rq.Command:
        request = rq.read_file(self._store, token, rq.REQUEST, rq.Request)
        if request.format_version not in (rq.FORMAT_VERSION, rq.VERSION_WITH_FORMAT):
            raise LocationError(
                f"the request has format version {request.format_version}, the driver reads {rq.VERSION_WITH_FORMAT}: "
                "use the release that the query runs on"
            )
        return request.command

    def _remove_answered(self, answered: list[str]) -> None:
        """Remove the files of requests that were answered ``ANSWER_KEPT_MS`` ago."""
        now_ms = self._wall_ms()
        for token in answered:
            if now_ms - self._answered_since_ms.setdefault(token, now_ms) >= ANSWER_KEPT_MS:
                rq.remove_files(self._store, token)
