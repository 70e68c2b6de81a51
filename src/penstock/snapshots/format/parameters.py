"""Parameters that state depends on in addition to its columns: keys, windows and functions, as a plan stores them.

A change of the window length, key expression or output mode does not change the names and types of state columns. Old
and new rows would be mixed, or would not match each other. Plans of earlier releases have no parameters. A parameter
that one of two plans lacks is not compared; the new plan stores it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from penstock.model.plain import Plain

PARAMETERS, ARGUMENTS = "parameters", "arguments"
"""Keys of an operator's entry in a plan; see ``OperatorSpec``."""
CHANGED_MEANING_HINT = (
    "State that was built with the stored values cannot be used with the new ones: rows of both would be mixed, or not "
    "find each other. Undo the change, or choose an empty checkpointLocation to start anew. If the stored state is "
    "right for the new values, set spark.penstock.snapshots.allowChangedMeaning=true: the query uses the state as it is"
)


class Difference(NamedTuple):
    """Line of the table of plan changes."""

    what: str
    stored: str
    new: str


class ChangedMeaning(Difference):
    """Difference in a parameter that state depends on."""


def meaning_entry(parameters: Mapping[str, str], arguments: Sequence[str]) -> dict[str, Plain]:
    """Return the parameters as a part of the operator's entry; empty if it has none."""
    entry: dict[str, Plain] = {PARAMETERS: dict(sorted(parameters.items()))} if parameters else {}
    return entry | ({ARGUMENTS: list(arguments)} if arguments else {})


def changed_meaning(
    operator_id: str, before: Mapping[str, Plain], after: Mapping[str, Plain]
) -> Iterator[ChangedMeaning]:
    """Yield parameters whose values differ in two entries of an operator, and arguments that have changed position."""
    stored, new = before.get(PARAMETERS), after.get(PARAMETERS)
    changed = set()
    if isinstance(stored, dict) and isinstance(new, dict):
        for name in stored:
            if name in new and stored[name] != new[name]:
                changed.add(name)
                yield ChangedMeaning(f"{name} of {operator_id}", str(stored[name]), str(new[name]))
    old_arguments, arguments = before.get(ARGUMENTS), after.get(ARGUMENTS)
    if isinstance(old_arguments, list) and isinstance(arguments, list):
        for number, (one, other) in enumerate(zip(old_arguments, arguments, strict=False), 1):
            name = f"function {number}"
            if name not in changed and one != other and (other in old_arguments or one in arguments):
                yield ChangedMeaning(f"{name} of {operator_id}", str(one), str(other))
