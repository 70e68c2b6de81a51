"""Evolution of state that its user declares: comparison of a snapshot's tables with a later declaration.

A new table begins empty. Values may get new columns, which are null in existing rows, and wider columns, also inside
structs. Columns are identified by name. If the plan lacks something that the snapshot has, the user must delete the
table (``Evolution.deleted``) or allow the loss. Keys must not change.

Rows are not rewritten. Sections of one table may have been written under several plans, each with its own columns, and
``widening.as_schema`` reads them. Only if columns are given up is the whole table written again. Otherwise a later
column with the same name would find their values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from penstock.model.job_graph import Evolution
from penstock.model.plain import Plain
from penstock.snapshots.format.type_texts import parse_column
from penstock.snapshots.restoring.widening import can_evolve, can_widen

EVOLVES = "evolves"
"""Key of the part of an operator's entry in a plan that describes the evolution of its state."""

_Entry = Mapping[str, Plain]


class StateLoss(NamedTuple):
    """Part of a snapshot's state that a later plan has no place for.

    Attributes:
        table: the table, or the property that must not change (``Evolution.fixed``).
        column: column of the table's values; empty for the whole table.
        stored, new: descriptions in the snapshot and in the plan.
        final: the user cannot allow the loss.
    """

    table: str
    column: str
    stored: str
    new: str
    final: bool = False


def evolution_entry(evolution: Evolution | None) -> dict[str, Plain]:
    """Return the evolution as a part of the operator's entry, without empty parts."""
    if evolution is None:
        return {}
    parts: dict[str, Plain] = {
        "deleted": list(evolution.deleted),
        "essential": list(evolution.essential),
        "passing": list(evolution.passing),
        "fixed": dict(evolution.fixed),
        "renamed": {table: dict(columns) for table, columns in evolution.renamed.items()},
    }
    return {EVOLVES: {name: part for name, part in parts.items() if part}}


def evolves(operator: _Entry) -> bool:
    """Return True if rows of this operator's tables may lack columns that its plan has."""
    return isinstance(operator.get(EVOLVES), dict)


def passing_tables(operator: _Entry) -> list[str]:
    """Return the tables of the operator that hold input rows."""
    return _listed(operator, "passing")


def state_losses(before: _Entry, after: _Entry, hashed: int) -> list[StateLoss]:
    """Return the losses of an operator's tables between two plans. Passing tables are ignored.

    Args:
        before, after: entries of the operator in both plans; ``after`` evolves.
        hashed: number of leading key columns that determine the key group.
    """
    remaining = _states(after)
    passed = {*passing_tables(before), *passing_tables(after)}
    deleted, essential = _listed(after, "deleted"), _listed(after, "essential")
    found: list[StateLoss] = []
    for table, columns in _states(before).items():
        if table in passed:
            continue
        if table in remaining:
            found += _table_losses(table, before, after, hashed)
        elif table not in deleted:
            found.append(StateLoss(table, "", _text(columns[1:]), "absent"))
    found = [loss._replace(final=loss.table in essential) for loss in found]
    said, says = _fixed(before), _fixed(after)
    others = [name for name in said if says.get(name, said[name]) != said[name]]
    return [*found, *(StateLoss(name, "", said[name], says[name], final=True) for name in others)]


def _table_losses(table: str, before: _Entry, after: _Entry, hashed: int) -> Iterator[StateLoss]:
    (old_keys, stored), (new_keys, new) = _key_and_value_columns(before, table), _key_and_value_columns(after, table)
    if not _same_keys(old_keys, new_keys, hashed):
        yield StateLoss(table, "", f"by {_text(old_keys)}", f"by {_text(new_keys)}")
        return
    old_fields, new_fields = _renamed(before, table), _renamed(after, table)
    by_name = {column_name(column): column for column in new}
    for column in stored:
        name = column_name(column)
        other = by_name.get(name)
        if other is None or not can_evolve(column, other):
            yield StateLoss(table, name, column, other or "absent")
        elif evolves(before) and old_fields.get(name) != new_fields.get(name):
            yield StateLoss(
                table, name, f"field {old_fields.get(name, name)!r}", f"field {new_fields.get(name, name)!r}"
            )


def _same_keys(stored: Sequence[str], new: Sequence[str], hashed: int) -> bool:
    """Compare key columns. Columns that determine the key group must be equal; others may become wider."""
    return len(stored) == len(new) and all(
        before == after or (position >= hashed and can_widen(before, after))
        for position, (before, after) in enumerate(zip(stored, new, strict=True))
    )


def column_name(column: str) -> str:
    """Return the name in a text of the form ``name type``. Names may contain blanks."""
    found = parse_column(column)
    return column.partition(" ")[0] if found is None else str(found.name)


def _key_and_value_columns(operator: _Entry, table: str) -> tuple[list[str], list[str]]:
    """Return a table's key columns and its value columns, without the key group."""
    keys = cast("Mapping[str, int]", operator["keys"])[table]
    columns = _states(operator)[table][1:]
    return columns[:keys], columns[keys:]


def _states(operator: _Entry) -> Mapping[str, list[str]]:
    return cast("Mapping[str, list[str]]", operator["states"])


def _renamed(operator: _Entry, table: str) -> Mapping[str, str]:
    said = cast("Mapping[str, Mapping[str, Mapping[str, str]]]", operator.get(EVOLVES) or {})
    return said.get("renamed", {}).get(table, {})


def _listed(operator: _Entry, part: str) -> list[str]:
    said = cast("Mapping[str, list[str]]", operator.get(EVOLVES) or {})
    return said.get(part, [])


def _fixed(operator: _Entry) -> Mapping[str, str]:
    """Return the properties that must not change; empty in plans of earlier releases."""
    said = cast("Mapping[str, Mapping[str, str]]", operator.get(EVOLVES) or {})
    return said.get("fixed", {})


def _text(columns: Sequence[str]) -> str:
    return f"({', '.join(columns)})"
