"""Checkpoint location of a query: opened, claimed for the query and passed to its sources and sinks."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from penstock.config import Options
from penstock.connectors.base import Sink, Source
from penstock.errors import Fenced, LocationError, NotSupported
from penstock.model.job_graph import JobGraph
from penstock.snapshots.copied_locations import check_not_copied
from penstock.snapshots.fork import Origin, origin_query_id, start_fork
from penstock.snapshots.location import (
    IDENTITY_PATH,
    STAGED_FOLDER,
    claim_identity,
    identity_of,
    open_location,
    release_identity,
)
from penstock.snapshots.log.entries import Forked
from penstock.snapshots.store.store import LocalStore, Store
from penstock.snapshots.store.store_access import StoreAccess


class ClaimedLocation:
    """Open checkpoint location that is claimed for one query. Errors of the store are raised as LocationError.

    Args:
        location: a path on a shared file system, or an object store.
        access: credentials for an object store; None: those of the environment.
        origin: snapshot from which a new location starts as a fork.
        claimed: the user has confirmed that the query runs here even if the location is a copy of an existing one.

    Raises:
        LocationError, PlanChanged, CorruptSnapshot: the location cannot be used, or not for this graph.
        NotSupported: a source or sink needs a folder, and the location is not a folder.
    """

    def __init__(
        self,
        location: str,
        access: StoreAccess | None,
        graph: JobGraph,
        options: Options,
        origin: Origin | None,
        claimed: bool = False,
    ) -> None:
        self._access = access
        self._claimed = claimed
        self._location = location
        self._graph = graph
        self._options = options
        self._origin = origin
        self.store: Store = open_location(location, access, owner_only=options.checkpoint_owner_only)
        _refuse_keepers(graph, self.store)
        with self.usable():
            begins_anew = origin is not None and not self.store.exists(IDENTITY_PATH)
            proposed = identity_of(graph, str(uuid.uuid4()), origin_query_id(origin) if origin and begins_anew else "")
            self._identity = claim_identity(self.store, proposed, allow_dropped=options.allow_dropped_state)
        self._is_new = self._identity is proposed

    @property
    def query_id(self) -> str:
        return self._identity.query_id

    @contextmanager
    def usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LocationError(f"checkpointLocation {self.store.root} cannot be used: {error}; try again") from error

    def hand_over(self) -> Forked | None:
        """Prepare every start at this location and return the first log entry of a fork, or None.

        Copies the initial files of a fork, and passes the location to sources and sinks.

        Raises:
            LocationError, SinkError: the origin is incomplete, or a sink belongs to the origin.
        """
        options = self._options
        begins_with = start_fork(
            self._origin,
            self.store,
            self._identity,
            self._graph,
            allow_dropped=options.allow_dropped_state,
            allow_shared_sink=options.allow_shared_sink,
            sink_target=options.sink_target,
        )
        for vertex in self._graph.vertices:
            if vertex.source is not None:
                vertex.source.source.open(self.store.root, vertex.source.operator_id)
            if vertex.sink is not None:
                if self._identity.origin and options.allow_shared_sink:
                    vertex.sink.sink.share(self.query_id, self._identity.origin)
                vertex.sink.sink.stage_in(f"{self.store.root}/{STAGED_FOLDER}/{vertex.sink.operator_id}")
        return begins_with

    def refuse_copy_of(self, origin: str) -> None:
        """Raise LocationError if this location is an unclaimed copy of an existing one at the path ``origin``."""
        if not self._claimed:
            check_not_copied(self.store, origin, self.query_id, self._access)

    def give_back(self) -> None:
        """Release the claim after the first start was refused, if this start created the claim."""
        if self._is_new:
            with suppress(OSError):  # the claim then stays: the first error is the one to report
                release_identity(self.store)

    def confirm(self) -> None:
        """Confirm the claim after the first log entry was written.

        The driver that made the claim may have failed and released it before that.

        Raises:
            Fenced: the location belongs to another query.
        """
        with self.usable():
            stored = claim_identity(self.store, self._identity, allow_dropped=True)
        if stored.query_id != self.query_id:
            raise Fenced(f"another query was started at {self._location} at the same time; choose another location")


def _refuse_keepers(graph: JobGraph, store: Store) -> None:
    """Raise NotSupported if a source or sink keeps files at a location that is not a folder.

    Such connectors write and rename their files as in a folder.
    """
    if isinstance(store, LocalStore):
        return
    for vertex in graph.vertices:
        keepers: list[Source | Sink] = [] if vertex.source is None else [vertex.source.source]
        keepers += [] if vertex.sink is None else [vertex.sink.sink]
        for what in keepers:
            if what.keeps_files:
                raise NotSupported(
                    f"{what.describe()} keeps files at the checkpoint location, which has to be a folder for it, "
                    f"and {store.root} is none: give a checkpointLocation on a file system that driver and "
                    "executors share, or read and write with file or Kafka sources and file sinks"
                )
