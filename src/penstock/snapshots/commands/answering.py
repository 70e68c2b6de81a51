"""The owner's side of request files: what it finds it carries out once, and answers."""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import Fenced, LocationError
from penstock.redaction import without_secrets
from penstock.snapshots.commands import requests as rq
from penstock.snapshots.commands.changing import carry_out
from penstock.snapshots.commands.owned import Owned
from penstock.snapshots.store.store import Store

MAX_AT_ONCE = 16
"""Requests that one look takes in hand: the driver's own writing waits for it."""
LEFTOVER_MS = 600_000
"""How long the files of a request stay that is decided, but not cleared away by who asked."""
INTERRUPTED = "the driver that was asked for the snapshot has ended; `penstock snapshot list` tells whether it took it"


class RequestDesk:
    """Owned by a driver's log lane.

    Args:
        store: the location.
        wall_ms: a clock, for how long leftovers have been seen.
    """

    def __init__(self, store: Store, wall_ms: Callable[[], int]) -> None:
        self._store = store
        self._wall_ms = wall_ms
        self._in_hand: set[str] = set()
        self._takes: list[tuple[str, rq.Take]] = []
        self._over_since_ms: dict[str, int] = {}

    def look(self, owned: Owned) -> tuple[tuple[str, rq.Take], ...]:
        """Carry out what is asked for; the snapshots that are to be taken are handed back, and stay in hand until
        ``answer_take``.

        Raises:
            Fenced: the location is not this owner's any more; nothing was done.
            OSError: the store fails; the next look goes on with it.
        """
        found = rq.tokens_in(self._store.list(rq.FOLDER))
        open_ones = [token for token, kinds in found.items() if rq.REQUEST in kinds and rq.ANSWER not in kinds]
        waiting = [token for token in open_ones if token not in self._in_hand and token not in self._over_since_ms]
        if waiting:
            owned.log.check_owned()
        for token in waiting[:MAX_AT_ONCE]:
            self._carry_out(token, owned)
        self._clear_away([token for token in found if token not in self._in_hand and token not in waiting])
        self._over_since_ms = {token: since for token, since in self._over_since_ms.items() if token in found}
        takes, self._takes = tuple(self._takes), []
        return takes

    @property
    def in_hand(self) -> tuple[str, ...]:
        """Those that ask for snapshots and are not answered yet."""
        return tuple(sorted(self._in_hand))

    def answer_take(self, token: str, snapshot: str, refusal: str) -> None:
        """Tell of a snapshot that ``look`` handed back. Raises OSError."""
        self._in_hand.discard(token)
        rq.put(self._store, token, rq.ANSWER, rq.Answer(without_secrets(refusal), snapshot))

    def _carry_out(self, token: str, owned: Owned) -> None:
        """Take one request in hand and answer it, unless somebody has decided on it."""
        interrupted = not rq.put(self._store, token, rq.TAKEN, rq.Taken(rq.BY_OWNER))
        try:
            if interrupted and rq.read(self._store, token, rq.TAKEN, rq.Taken).by != rq.BY_OWNER:
                self._over_since_ms.setdefault(token, self._wall_ms())
                return
            answer = self._answer_to(token, self._verb(token), interrupted, owned)
        except Fenced:
            raise
        except FileNotFoundError:  # withdrawn while this looked
            self._store.delete(rq.path_of(token, rq.TAKEN))
            return
        except LocationError as refusal:
            answer = rq.Answer(without_secrets(str(refusal)))
        if answer is not None:
            rq.put(self._store, token, rq.ANSWER, answer)

    def _answer_to(self, token: str, verb: rq.Verb, interrupted: bool, owned: Owned) -> rq.Answer | None:
        """``interrupted``: a driver before this one had it in hand. What can be done twice is done again."""
        match verb:
            case rq.Take() if interrupted:
                return rq.Answer(INTERRUPTED)
            case rq.Take():
                self._in_hand.add(token)
                self._takes.append((token, verb))
                return None
            case _:
                return carry_out(owned, verb)

    def _verb(self, token: str) -> rq.Verb:
        request = rq.read(self._store, token, rq.REQUEST, rq.Request)
        if request.format_version not in (rq.FORMAT_VERSION, rq.WITH_FORMAT):
            raise LocationError(
                f"the request has format version {request.format_version}, the driver reads {rq.WITH_FORMAT}: use "
                "the release that the query runs on"
            )
        return request.verb

    def _clear_away(self, over: list[str]) -> None:
        """What nobody is going to read: who asked has had its time."""
        now_ms = self._wall_ms()
        for token in over:
            if now_ms - self._over_since_ms.setdefault(token, now_ms) >= LEFTOVER_MS:
                rq.remove(self._store, token)
