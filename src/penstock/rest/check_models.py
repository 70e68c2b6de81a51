"""JSON models of the results of verifying and comparing snapshots."""

from __future__ import annotations

from penstock.rest.models import FromAttributes, Redacted


class DamageResource(FromAttributes):
    """``snapshots``: ids of those that cannot be restored because of it, 100 at most; none for what none needs."""

    path: str
    problem: Redacted
    snapshots: list[str]


class VerificationResource(FromAttributes):
    """Result of a verification.

    ``sections``, ``bytes``: number of intact sections, and bytes read. ``damaged``: number of damages, 0 if everything
    is intact. ``damage``: the first 100 damages. ``orphan_files``, ``orphan_bytes``: files that no snapshot refers to;
    a collection removes them, and they are no damage. ``unsettled_files``, ``unsettled_bytes``: files that are newer
    than the newest snapshot. ``unused_known``: False if orphans could not be determined: only one snapshot was
    verified, or the metadata of one is damaged.
    """

    log_entries: int
    snapshots: int
    sections: int
    bytes: int
    damaged: int
    damage: list[DamageResource]
    orphan_files: int
    orphan_bytes: int
    unsettled_files: int
    unsettled_bytes: int
    unused_known: bool


class TableDiff(FromAttributes):
    """Comparison of the rows of one state table.

    ``keys``: key columns; null if the plan does not name them. Rows are compared as a whole then, and none is
    ``changed``. ``problem``: the reason why the rows could not be compared, otherwise empty.
    """

    operator_id: str
    operator: str
    table: str
    keys: list[str] | None
    added: int
    changed: int
    removed: int
    problem: Redacted


class SourceDiff(FromAttributes):
    """Progress of one source between two snapshots.

    ``rows_in``: rows read in between. ``found``, ``finished``, ``moved``: numbers of splits. ``state_changed``: True if
    the state of discovery differs.
    """

    operator_id: str
    name: str
    state_changed: bool
    rows_in: int
    found: int
    finished: int
    moved: int


class EdgeDiff(FromAttributes):
    """Rows in flight; ``text`` names the edge's ends."""

    exchange: str
    text: str
    rows_before: int
    rows_after: int
    watermark_us_before: int | None
    watermark_us_after: int | None


class DiffResource(FromAttributes):
    """Differences between the snapshots ``before`` and ``after``, whatever their parallelism."""

    before: str
    after: str
    parallelism_before: int
    parallelism_after: int
    tables: list[TableDiff]
    sources: list[SourceDiff]
    edges: list[EdgeDiff]
