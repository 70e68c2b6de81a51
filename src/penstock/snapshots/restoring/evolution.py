"""State that its user declares, and declares otherwise later: what becomes of the tables that a snapshot has.

A table may be new, and begins empty. Its values may have new columns, which are null in rows that there are, and wider
ones, also inside of structs; columns are told apart by name. What a snapshot has and the plan has not is lost: that has
to be said, by deleting the table (``Evolution.deleted``) or by giving up what there is no place for. Keys stay as they
are.

Rows stay as they were written: sections of one table may have been written under several plans, each with the columns
of its time. ``widening.as_schema`` reads them. Only where columns are given up is the table written anew as a whole, so
that a column of the same name that comes later does not find their values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from penstock.model.job_graph import Evolution
from penstock.model.plain import Plain
from penstock.snapshots.format.type_texts import column_of
from penstock.snapshots.restoring.widening import grows, widens

EVOLVES = "evolves"
"""Where an operator's entry in a plan says that its state evolves, and how."""

_Entry = Mapping[str, Plain]


class Loss(NamedTuple):
    """What a snapshot has and a later plan has no place for.

    Attributes:
        table: or, as ``Evolution.fixed`` calls it, what has to stay.
        column: of the table's values; empty: the whole table.
        stored, new: what it is in the snapshot, and what it would have to be.
        final: it cannot be given up.
    """

    table: str
    column: str
    stored: str
    new: str
    final: bool = False


def evolution_entry(evolution: Evolution | None) -> dict[str, Plain]:
    """What a plan's entry says of it; of what there is nothing to be said, nothing."""
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
    """Whether rows of this operator's tables may lack columns that its plan has."""
    return isinstance(operator.get(EVOLVES), dict)


def passing(operator: _Entry) -> list[str]:
    """Its tables of input rows."""
    return _listed(operator, "passing")


def losses(before: _Entry, after: _Entry, hashed: int) -> list[Loss]:
    """What of an operator's tables is lost from one plan to the next; ``passing`` ones are not looked at.

    Args:
        before, after: its entries in both plans; ``after`` evolves.
        hashed: how many leading key columns decide the key group.
    """
    there = _states(after)
    passed = {*passing(before), *passing(after)}
    deleted, essential = _listed(after, "deleted"), _listed(after, "essential")
    found: list[Loss] = []
    for table, columns in _states(before).items():
        if table in passed:
            continue
        if table in there:
            found += _of_table(table, before, after, hashed)
        elif table not in deleted:
            found.append(Loss(table, "", _text(columns[1:]), "absent"))
    found = [loss._replace(final=loss.table in essential) for loss in found]
    said, says = _fixed(before), _fixed(after)
    others = [name for name in said if says.get(name, said[name]) != said[name]]
    return [*found, *(Loss(name, "", said[name], says[name], final=True) for name in others)]


def _of_table(table: str, before: _Entry, after: _Entry, hashed: int) -> Iterator[Loss]:
    (old_keys, stored), (new_keys, new) = _parts(before, table), _parts(after, table)
    if not _same_keys(old_keys, new_keys, hashed):
        yield Loss(table, "", f"by {_text(old_keys)}", f"by {_text(new_keys)}")
        return
    old_fields, new_fields = _renamed(before, table), _renamed(after, table)
    wanted = {column_name(column): column for column in new}
    for column in stored:
        name = column_name(column)
        other = wanted.get(name)
        if other is None or not grows(column, other):
            yield Loss(table, name, column, other or "absent")
        elif evolves(before) and old_fields.get(name) != new_fields.get(name):
            yield Loss(table, name, f"field {old_fields.get(name, name)!r}", f"field {new_fields.get(name, name)!r}")


def _same_keys(stored: Sequence[str], new: Sequence[str], hashed: int) -> bool:
    """Those that decide the key group may not be wider either."""
    return len(stored) == len(new) and all(
        before == after or (position >= hashed and widens(before, after))
        for position, (before, after) in enumerate(zip(stored, new, strict=True))
    )


def column_name(column: str) -> str:
    """Of ``name type``; names may have blanks, too."""
    found = column_of(column)
    return column.partition(" ")[0] if found is None else str(found.name)


def _parts(operator: _Entry, table: str) -> tuple[list[str], list[str]]:
    """A table's key columns and its value columns, without the key group."""
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
    """Empty in plans of earlier releases."""
    said = cast("Mapping[str, Mapping[str, str]]", operator.get(EVOLVES) or {})
    return said.get("fixed", {})


def _text(columns: Sequence[str]) -> str:
    return f"({', '.join(columns)})"
