"""Stored form of a plan, and rules by which a later plan may differ from it.

Operators and exchanges are identified by their ids. User code, paths and names are never compared, and neither are
expressions that no state depends on. Operators without state may be added, removed and moved. State must find its
operator in the new plan, with the same columns and parameters (``parameters.py``). New state must not begin in the
middle of existing output.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from penstock.errors import PlanChanged
from penstock.model.job_graph import Edge, EdgeKind, JobGraph, SinkSpec
from penstock.model.manifest import PlanManifest
from penstock.model.plain import Plain
from penstock.snapshots.format.envelope import digest
from penstock.snapshots.format.parameters import (
    CHANGED_MEANING_HINT,
    ChangedMeaning,
    Difference,
    changed_meaning,
    meaning_entry,
)
from penstock.snapshots.restoring.evolution import StateLoss, evolution_entry, evolves, passing_tables, state_losses
from penstock.snapshots.restoring.widening import can_widen

Entry = Mapping[str, Plain]

CHANGED_COLUMN = "__changed"
"""Column after the keys of an aggregation's state: True if the group changed since it was last emitted."""
_CHANGED_COLUMN_TEXT = f"{CHANGED_COLUMN} bool"
_COUNTER = re.compile(r"__a\d+_(count|seen)")
"""Names of aggregate buffers that hold the number of values, or whether there was a value."""
EDGE_PROPERTIES = ("kind", "keys", "schema", "port")
"""Properties of an exchange that its in-flight rows depend on; see ``accepts_rows_of``."""
DROPPED_STATE_HINT = (
    "Undo the change, or give an empty checkpointLocation to start anew; "
    "spark.penstock.snapshots.allowDroppedState=true gives up the state of operators that are absent now"
)
DECLARED_STATE_HINT = (
    "State variables and fields of their values may be added, and fields may be wider; the rest has to be declared as "
    "it was. handle.deleteIfExists(name) in init deletes a variable, and "
    "spark.penstock.snapshots.allowDroppedState=true gives up what has no place any more: a variable of another kind "
    "begins empty then, and a field of another type is null. Timers can only be given up, or get another time mode, "
    "with an empty checkpointLocation"
)


class LostState(Difference):
    """Difference in state that a user declares."""


def plan_changed(changed: Sequence[Difference], way_out: str = "") -> PlanChanged:
    """Return the error with the table of differences.

    Args:
        way_out: text that says what the user can do; by default the hints for these kinds of differences.
    """
    if not way_out:
        ways = {LostState: DECLARED_STATE_HINT, ChangedMeaning: CHANGED_MEANING_HINT, Difference: DROPPED_STATE_HINT}
        way_out = "\n".join(text for kind, text in ways.items() if any(type(line) is kind for line in changed))
    rows = "\n".join(f"  {line.what}: stored {line.stored}, now {line.new}" for line in changed)
    return PlanChanged(f"the query does not fit the state at its checkpointLocation:\n{rows}\n{way_out}")


def plan_of(graph: JobGraph) -> PlanManifest:
    """Return the stored form of a plan."""
    operators: dict[str, dict[str, Plain]] = {}
    for vertex in graph.vertices:
        if vertex.source is not None:
            source = vertex.source.source
            entry = _operator("source", vertex.id, vertex.source.name, source.schema, {})
            kind: dict[str, Plain] = {"kind": source.kind, "takes_away": bool(source.removes_input())}
            operators[vertex.source.operator_id] = entry | kind
        for spec in vertex.operators:
            entry = _operator("operator", vertex.id, spec.name, spec.output_schema, spec.state_schemas)
            keys: dict[str, Plain] = dict(sorted(spec.state_keys.items()))
            entry |= ({"keys": keys} if keys else {}) | evolution_entry(spec.evolution)
            operators[spec.operator_id] = entry | meaning_entry(spec.parameters, spec.argument_texts)
        if vertex.sink is not None:
            entry = _operator("sink", vertex.id, vertex.sink.name, pa.schema([]), {})
            target = target_of(vertex.sink)
            operators[vertex.sink.operator_id] = entry | ({"target": target} if target else {})
    return PlanManifest(operators, {edge.identity: _edge(edge) for edge in graph.edges})


def target_of(spec: SinkSpec) -> str:
    """Return the stored target of a sink; empty if it is unknown. Equal stored targets are the same place."""
    target = spec.sink.target()
    return digest(target.encode()) if target else ""


def targets_of(plan: PlanManifest) -> dict[str, list[str]]:
    """Return the targets of a stored plan by sink. A sink has one target, or none if it is unknown."""
    return {
        operator_id: [str(operator["target"])] if "target" in operator else []
        for operator_id, operator in plan.operators.items()
        if operator["role"] == "sink"
    }


def taken_away(plan: PlanManifest) -> str:
    """Return the first source, as messages name it, that removes its input after reading it; empty if there is none."""
    sources = [f"{name} ({entry['name']})" for name, entry in plan.operators.items() if entry.get("takes_away")]
    return next(iter(sources), "")


def _schema_text(schema: pa.Schema) -> list[Plain]:
    """Return the stored form of a schema: ``name type`` per column."""
    return [f"{field.name} {field.type}" for field in schema]


def _operator(
    role: str, vertex: int, name: str, schema: pa.Schema, states: Mapping[str, pa.Schema]
) -> dict[str, Plain]:
    tables: dict[str, Plain] = {table: _schema_text(state) for table, state in sorted(states.items())}
    return {"role": role, "name": name, "schema": _schema_text(schema), "states": tables, "vertex": vertex}


def _edge(edge: Edge) -> dict[str, Plain]:
    keys: list[Plain] = [edge.schema.names[position] for position in edge.key_columns]
    entry: dict[str, Plain] = {
        "id": edge.id,
        "producer": edge.producer,
        "consumer": edge.consumer,
        "kind": edge.kind.value,
        "keys": keys,
        "schema": _schema_text(edge.schema),
    }
    return entry | ({"port": edge.port} if edge.port else {})


def differences(old: PlanManifest, new: PlanManifest, *, allow_dropped: bool = False) -> list[Difference]:
    """Return the differences that prevent a restore of the state of ``old`` into ``new``.

    Args:
        allow_dropped: permit the loss of state that the new plan has no place for.
    """
    found: list[Difference] = []
    for operator_id in dict.fromkeys([*old.operators, *new.operators]):
        before, after = old.operators.get(operator_id), new.operators.get(operator_id)
        what = f"operator {operator_id}"
        if before is None:
            assert after is not None
            if _has_state(after) and _has_old_output(new, after["vertex"], old):
                found.append(Difference(what, "absent", str(after["name"])))
        elif after is None:
            if _has_state(before) and not (allow_dropped and before["role"] == "operator"):
                found.append(Difference(what, str(before["name"]), "absent"))
        elif before["role"] != after["role"]:
            found.append(Difference(what, str(before["role"]), str(after["role"])))
        elif before.get("kind", after.get("kind")) != after.get("kind"):
            found.append(Difference(f"source {operator_id}", str(before["kind"]), str(after["kind"])))
        elif _is_evolution(before, after):
            lost = losses_of(old, new, operator_id)
            found += [_lost_state(operator_id, loss) for loss in lost if loss.final or not allow_dropped]
        else:
            found += _compare_states(operator_id, _states(before), _states(after), _keys_into(new, after["vertex"]))
            found += _compare_keys(operator_id, before, after)
        if before is not None and after is not None:
            found += changed_meaning(operator_id, before, after)
    return found


def losses_of(old: PlanManifest, new: PlanManifest, operator_id: str) -> list[StateLoss]:
    """Return the parts of an operator's state that ``new`` lacks. Only user-declared state can be lost in part."""
    before, after = old.operators.get(operator_id), new.operators.get(operator_id)
    if before is None or after is None or not _is_evolution(before, after):
        return []
    return state_losses(before, after, hashed_column_count(new, operator_id) or 0)


def _is_evolution(before: Entry, after: Entry) -> bool:
    """Return True if an operator's state evolves and both plans have its keys."""
    return evolves(after) and all(
        isinstance(keys := one.get("keys"), dict) and _states(one).keys() <= keys.keys() for one in (before, after)
    )


def _lost_state(operator_id: str, loss: StateLoss) -> LostState:
    what = f"state of {operator_id}, {loss.table}" + (f", field {loss.column}" if loss.column else "")
    return LostState(what, loss.stored, loss.new)


def _compare_states(operator_id: str, before: Entry, after: Entry, keys: Collection[str]) -> list[Difference]:
    """Compare columns of states. Values may be wider than before. Keys may not, because their hash would change."""
    fitting = {
        table: after[table]
        for table, stored in before.items()
        if table in after and columns_fit(stored, after[table], keys, whole=True)
    }
    return compare_parts(f"state of {operator_id}", {**before, **fitting}, after)


def _compare_keys(operator_id: str, before: Entry, after: Entry) -> list[Difference]:
    """Compare the key columns of tables whose keys are in both plans."""
    old, new = before.get("keys"), after.get("keys")
    if not isinstance(old, dict) or not isinstance(new, dict):
        return []
    return [
        Difference(f"state of {operator_id}, key columns of {table}", str(old[table]), str(new[table]))
        for table in old
        if table in new and old[table] != new[table]
    ]


def columns_fit(stored: Plain, new: Plain, keys: Collection[str], *, whole: bool) -> bool:
    """Return True if every new column is a stored column or a wider form of one.

    Args:
        whole: also require that no other column was stored.
    """
    assert isinstance(stored, list)
    assert isinstance(new, list)
    before, after = list(map(str, stored)), list(map(str, new))
    if before == after:
        return True
    if len(set(before)) < len(before) or (whole and len(before) != len(after)):
        return False
    return all(
        column in before
        or (
            sum(can_widen(one, column) for one in before) == 1 and not any(column.startswith(f"{key} ") for key in keys)
        )
        for column in after
    )


def _keys_into(plan: PlanManifest, vertex: Plain) -> list[str]:
    """Return the columns that partition the input rows of a vertex."""
    keys = [edge["keys"] for edge in plan.edges.values() if edge["consumer"] == vertex]
    return [str(key) for some in keys if isinstance(some, list) for key in some]


def compare_parts(what: str, before: Entry, after: Entry) -> list[Difference]:
    """Compare two entries part by part."""
    return [
        Difference(f"{what}, {part}", _text(before.get(part)), _text(after.get(part)))
        for part in dict.fromkeys([*before, *after])
        if before.get(part) != after.get(part)
    ]


def accepts_rows_of(new: Entry, old: Entry) -> bool:
    """Return True if in-flight rows of the exchange ``old`` can continue on ``new``.

    Columns are identified by name and type. They may be missing, in another order or, unless they are keys, wider. The
    kind and the keys only determine which subtask reads a row, so they may change (``is_repartitioned``). A broadcast
    exchange is an exception, because it has copies of each row.
    """
    if new.get("port") != old.get("port"):
        return False
    if is_repartitioned(new, old) and EdgeKind.BROADCAST.value in (new["kind"], old["kind"]):
        return False
    keys = new["keys"]
    assert isinstance(keys, list)
    return columns_fit(old["schema"], new["schema"], [str(key) for key in keys], whole=False)


def is_repartitioned(new: Entry, old: Entry) -> bool:
    """Return True if rows of the exchange ``old`` may belong to other subtasks on ``new``."""
    return any(new.get(part) != old.get(part) for part in ("kind", "keys"))


def _has_state(operator: Entry) -> bool:
    """Return True if the operator has state. A source's positions are state, too."""
    return operator["role"] == "source" or bool(operator["states"])


def _states(operator: Entry) -> Entry:
    states = operator["states"]
    assert isinstance(states, dict)
    return states


def _has_old_output(plan: PlanManifest, vertex: Plain, old: PlanManifest) -> bool:
    """Return True if the output of this vertex reaches a sink that the old plan had."""
    reached = [vertex]
    for vertex_id in reached:
        reached += [edge["consumer"] for edge in plan.edges.values() if edge["producer"] == vertex_id]
    return any(
        operator["role"] == "sink" and operator["vertex"] in reached and operator_id in old.operators
        for operator_id, operator in plan.operators.items()
    )


def _text(value: Plain) -> str:
    if value is None:
        return "absent"
    return f"({', '.join(map(str, value))})" if isinstance(value, list) else str(value)


def key_column_count(plan: PlanManifest, operator_id: str, table: str) -> int | None:
    """Return the number of key columns of a state table, which follow ``__key_group``; None if it is unknown.

    Plans of earlier releases do not store it. There, the keys of an aggregation end at ``CHANGED_COLUMN``. For other
    tables, the leading columns that partition the rows are the key.
    """
    operator = plan.operators.get(operator_id, {})
    stored = operator.get("keys")
    count = stored.get(table) if isinstance(stored, dict) else None
    if isinstance(count, int):
        return count
    states = operator.get("states")
    columns = states.get(table) if isinstance(states, dict) else None
    if not isinstance(columns, list):
        return None
    columns_after_group = [str(column) for column in columns[1:]]
    if _CHANGED_COLUMN_TEXT in columns_after_group:
        return columns_after_group.index(_CHANGED_COLUMN_TEXT)
    for edge in plan.edges.values():
        keys = edge.get("keys")
        if edge.get("consumer") == operator.get("vertex") and isinstance(keys, list) and keys:
            if len(keys) > len(columns_after_group):
                continue
            leading = zip(keys, columns_after_group, strict=False)
            if all(column.startswith(f"{key} ") for key, column in leading):
                return len(keys)
    return None


def first_optional_column(plan: PlanManifest, operator_id: str, table: str) -> int | None:
    """Return the position of the first column of a state table that older rows may lack; None if they lack none."""
    operator = plan.operators.get(operator_id, {})
    keys = key_column_count(plan, operator_id, table)
    return None if keys is None or not evolves(operator) or table in passing_tables(operator) else 1 + keys


def hashed_column_count(plan: PlanManifest, operator_id: str) -> int | None:
    """Return the number of an operator's leading key columns that determine the key group of a row.

    These are the keys of its input edge. The number is 0 if all rows go to one subtask, and None if there is no such
    edge.
    """
    vertex = plan.operators.get(operator_id, {}).get("vertex")
    for edge in plan.edges.values():
        keys = edge.get("keys")
        if edge.get("consumer") == vertex and isinstance(keys, list) and (keys or edge.get("kind") == "hash"):
            return len(keys)
    return None


def is_never_null(column: str, field: pa.Field) -> bool:
    """Return True if a column of a state table has no nulls, because of its type or because it is a counter."""
    return not field.nullable or column == CHANGED_COLUMN or _COUNTER.fullmatch(column) is not None
