"""Snapshot client that uses the REST service of a running query's driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from penstock.cli.query.models import Query, Snapshot, SnapshotList, SnapshotOperation, understood
from penstock.cli.query.operations import SUCCEEDED, failure_of, followed
from penstock.cli.query.service import Answer, Service
from penstock.cli.snapshot.snapshot_client import Deleted, Labelled
from penstock.cli.texts import one_line
from penstock.errors import LocationError, NoAnswer, ServiceError
from penstock.snapshots.commands import requests as rq
from penstock.snapshots.commands.deleting import deletion_refusal
from penstock.snapshots.commands.ownership import new_token
from penstock.snapshots.format.names import find_named

PATIENT_S = 60.0
"""Timeout of requests that read the location or wait for its owner. A store may be slow."""
TRIES = 3
"""Most attempts of a request that is safe to repeat."""
PAUSE_S = 0.5
"""Pause between two attempts."""


@dataclass(frozen=True)
class RestSnapshotClient:
    """Snapshot client that uses the REST service. ``location``: the location as the user wrote it."""

    service: Service
    query: Query
    location: str
    quiet: bool
    """True to draw no progress bar."""

    def take(self, request: rq.TakeSnapshot) -> str:
        body: dict[str, Any] = {"label": request.label, "note": request.note}
        if request.format:
            body["format"] = request.format
        if request.alignment:
            body["alignment"] = request.alignment
        if request.timeout_ms:
            body["timeout_ms"] = request.timeout_ms
        service, path, key = self._patient_service, self._path(), new_token()
        done = self._run_operation("a snapshot is taken", lambda: service.post(*path, body=body, key=key), TRIES)
        if done.snapshot is None:
            raise NoAnswer(
                f"{service.url} has taken a snapshot, and does not say which: `{self._status_command}` tells"
            )
        return one_line(done.snapshot)

    def delete(self, names: Sequence[str]) -> Deleted:
        stored = self._stored()
        chosen = {one.checkpoint: one.id for one in (self._named(stored, name) for name in names)}
        why = deletion_refusal(chosen, [one.checkpoint for one in stored.snapshots if one.in_lineage])
        if why:
            raise LocationError(why)
        ids = [chosen[checkpoint] for checkpoint in sorted(chosen)]
        parts = [ids[first : first + rq.MAX_IDS] for first in range(0, len(ids), rq.MAX_IDS)]
        ended = [self._delete(part) for part in parts]
        return Deleted(
            [one_line(name) for name in ids],
            sum(one.freed_files or 0 for one in ended),
            sum(one.freed_bytes or 0 for one in ended),
        )

    def label(self, name: str, label: str | None, note: str | None) -> Labelled:
        checkpoint = self._named(self._stored(), name).id
        changes = {member: text for member, text in (("label", label), ("note", note)) if text is not None}
        what, path = f"{one_line(checkpoint)} is called so", self._path(checkpoint)
        answer = self._send(what, lambda: self._patient_service.patch(*path, changes=changes))
        changed = understood(self.service, answer.document, Snapshot)
        return Labelled(one_line(changed.id), changed.label, changed.note, one_line(changed.kind))

    def _delete(self, ids: Sequence[str]) -> SnapshotOperation:
        parameters = urlencode([("snapshot", name) for name in ids])
        what = f"{one_line(', '.join(ids))} {'is' if len(ids) == 1 else 'are'} deleted"
        return self._run_operation(what, lambda: self._patient_service.delete(*self._path(), query=parameters))

    def _stored(self) -> SnapshotList:
        return understood(self.service, self._patient_service.get(*self._path()).document, SnapshotList)

    @staticmethod
    def _named(stored: SnapshotList, name: str) -> Snapshot:
        return find_named(one_line(stored.location), stored.snapshots, name)

    def _run_operation(self, what: str, send: Callable[[], Answer], tries: int = 1) -> SnapshotOperation:
        """Begin an operation, wait for its end and return it. ``what``: sentence that is true if it succeeds.

        A failure is reported only with its message, as by ``FileSnapshotClient``.
        """
        begun = understood(self.service, self._send(what, send, tries).document, SnapshotOperation)
        ended = followed(self.service, self.query, begun, hidden=self.quiet, status_command=self._status_command)
        if ended.state != SUCCEEDED:
            raise ServiceError(failure_of(ended)[1])
        return ended

    def _send(self, what: str, send: Callable[[], Answer], tries: int = 1) -> Answer:
        """Send a request, several times if necessary, and return the first answer.

        After a lost answer, a later refusal does not show whether the request was executed.
        """
        lost: ServiceError | None = None
        for attempt in range(tries):
            time.sleep(PAUSE_S if attempt else 0)
            try:
                return send()
            except NoAnswer as error:
                lost = error
            except ServiceError as error:
                if lost is None:
                    raise
                lost = error
        raise NoAnswer(f"{lost}; it is not known whether {what}: `{self._status_command}` tells") from lost

    def _path(self, *more: str) -> tuple[str, ...]:
        return ("queries", self.query.id, "snapshots", *more)

    @property
    def _patient_service(self) -> Service:
        return replace(self.service, timeout_s=PATIENT_S)

    @property
    def _status_command(self) -> str:
        return f"penstock snapshot list {one_line(self.location)}"
