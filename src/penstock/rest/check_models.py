"""JSON models of the results of verifying and comparing snapshots."""

from __future__ import annotations

from penstock.rest.models import FromAttributes, Redacted


class DamageResource(FromAttributes):
    """``snapshots``: ids of those that cannot be restored because of it, 100 at most; none for what none needs."""

    path: str
    problem: Redacted
    snapshots: list[str]


class VerificationResource(FromAttributes):
    """``sections``, ``bytes``: that were read and are intact. ``damaged``: how many damages there are, 0 if everything
    is intact; ``damage``: the first 100 of them. ``orphan_files``, ``orphan_bytes``: that no snapshot refers to and a
    collection removes, which is no damage; ``unsettled_files``, ``unsettled_bytes``: that are newer than the newest
    snapshot. ``unused_known``: whether these could be told; not if only one snapshot was verified, nor while the
    metadata of one is damaged."""

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
    """Rows of a state table. ``keys``: null where the plan does not tell them: rows are compared whole then, and none
    is ``changed``. ``problem``: why they could not be compared; otherwise empty."""

    operator_id: str
    operator: str
    table: str
    keys: list[str] | None
    added: int
    changed: int
    removed: int
    problem: Redacted


class SourceDiff(FromAttributes):
    """``rows_in``: read in between. ``found``, ``finished``, ``moved``: splits. ``state_changed``: discovery has found
    something or let go of something."""

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
