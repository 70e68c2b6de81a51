"""Choice of the snapshot client: REST service or request files.

The REST client is used if the user has named a service and a query that runs there has this location. Otherwise request
files at the location are used, which need no service. The output is the same.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from penstock.cli.query.app import connected
from penstock.cli.query.models import Query
from penstock.cli.query.naming import all_queries
from penstock.cli.query.service import Service
from penstock.cli.snapshot.file_client import FileSnapshotClient
from penstock.cli.snapshot.rest_client import RestSnapshotClient
from penstock.cli.snapshot.snapshot_client import SnapshotClient
from penstock.errors import ConfigError, LocationError, ServiceError
from penstock.snapshots.location import IDENTITY_PATH, read_identity
from penstock.snapshots.store.stores import canonical_location, store_at


def snapshot_client_of(
    location: str, url: str, token_file: Path | None, ca: Path | None, *, force: bool = False, quiet: bool = False
) -> SnapshotClient:
    """Return a client of the owner of ``location``. Nothing is changed yet.

    Args:
        location: the checkpoint location.
        url: address of the service; empty: none. The token is sent only to this address, never to an address that is
            read from the location.
        token_file: file with the token; None: see ``connected``.
        ca: PEM file of the certificates to trust.
        force: take over the location if no driver answers there. Only its files can decide that, so they are used.
        quiet: draw no progress bars.

    Raises:
        ConfigError: ``url``, the token or ``ca`` is not valid, or ``token_file`` is given without ``url``.
        LocationError: ``location`` is not a valid location.
        ServiceError: the service does not answer whether it has the query. Request files are not used then, because
            that would hide the failure of the service that the user named.
    """
    if token_file is not None and not url:
        raise ConfigError("--token-file holds the token of a REST service, and none is named: give its --url, too")
    if not url or force:
        return FileSnapshotClient(location, force)
    service = connected(url, token_file, ca)
    try:
        query = _running_at(location, service)
    except ServiceError as error:
        raise ServiceError(f"{error}; or, by the files at the location and without a service: --url ''") from error
    return FileSnapshotClient(location) if query is None else RestSnapshotClient(service, query, location, quiet)


def _running_at(location: str, service: Service) -> Query | None:
    canonical = canonical_location(location)
    query = next((one for one in all_queries(service) if not one.over and _is_at(one, canonical)), None)
    return None if query is None or _id_at(location) not in (None, query.id) else query


def _is_at(query: Query, canonical: str) -> bool:
    try:
        return canonical_location(query.location) == canonical
    except LocationError:  # the service may be a later release that supports more schemes
        return False


def _id_at(location: str) -> str | None:
    """Return the query id of the location as seen from this machine.

    On another machine the same path may belong to another query.

    Returns:
        The id; empty if the path has other content. None if the path is empty or cannot be read from this machine.
    """
    with suppress(LocationError, OSError):
        store = store_at(location)
        names = store.top_names()
        if IDENTITY_PATH in names:
            return read_identity(store).query_id
        return "" if names else None
    return None
