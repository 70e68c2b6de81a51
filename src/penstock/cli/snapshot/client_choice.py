"""Choice of the snapshot client: REST service or request files.

The REST client is used if the user has named a service and a query that runs there has this location. Otherwise request
files at the location are used, which need nothing else. The output is the same.
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
    """Return the way to the owner of ``location``. Nothing is changed yet.

    Args:
        url: of the service, empty for none. A token goes there and to no other address, above all to none that is read
            from the location.
        force: take the location over if no driver answers there: that is decided by its files, so they are asked.
        quiet: draw no bars.

    Raises:
        ConfigError: ``url``, the token or ``ca`` cannot be, or there is a ``token_file`` without a ``url``.
        LocationError: ``location`` cannot be one.
        ServiceError: the service that the user has named does not tell whether it has the query. To go by the files
            then would hide that what was asked for does not work.
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
    except LocationError:  # a later release knows more schemes
        return False


def _id_at(location: str) -> str | None:
    """Return the query id of the location as seen from this machine.

    On another machine the same path may be another query's, or something else (empty then). None: it cannot be seen
    from here, so it can only be the service's.
    """
    with suppress(LocationError, OSError):
        store = store_at(location)
        names = store.top_names()
        if IDENTITY_PATH in names:
            return read_identity(store).query_id
        return "" if names else None
    return None
