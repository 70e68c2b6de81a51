"""What state depends on besides its columns: the meaning of keys, windows and functions, as a plan stores it.

Under another window length, key expression or output mode a state has columns of the same names and types, and rows of
two meanings would be mixed in it, or never find each other. Plans of earlier releases do not tell these; what one plan
does not tell is not compared, and stored from then on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from penstock.operators.base import Plain

PARAMETERS, ARGUMENTS = "parameters", "arguments"
"""Where an operator's entry in a plan has them, see ``OperatorSpec``."""
MEANT = (
    "State that was built with one of these must not go on with another: rows of both would be mixed, or not find each "
    "other. Undo the change; or give an empty checkpointLocation to start anew. If both mean the same to you, "
    "spark.penstock.snapshots.allowChangedMeaning=true takes the state over as it is"
)


class Difference(NamedTuple):
    """One line of the table of what changed."""

    what: str
    stored: str
    new: str


class ChangedMeaning(Difference):
    """A line about what state depends on."""


def meaning_entry(parameters: Mapping[str, str], arguments: Sequence[str]) -> dict[str, Plain]:
    """The part of an operator's entry; empty for one that has none."""
    entry: dict[str, Plain] = {PARAMETERS: dict(sorted(parameters.items()))} if parameters else {}
    return entry | ({ARGUMENTS: list(arguments)} if arguments else {})


def changed_meaning(
    operator_id: str, before: Mapping[str, Plain], after: Mapping[str, Plain]
) -> Iterator[ChangedMeaning]:
    """Parameters that both entries of an operator tell, and differently; arguments that have changed places."""
    stored, new = before.get(PARAMETERS), after.get(PARAMETERS)
    if isinstance(stored, dict) and isinstance(new, dict):
        for name in stored:
            if name in new and stored[name] != new[name]:
                yield ChangedMeaning(f"{name} of {operator_id}", str(stored[name]), str(new[name]))
    old_arguments, arguments = before.get(ARGUMENTS), after.get(ARGUMENTS)
    if isinstance(old_arguments, list) and isinstance(arguments, list):
        for number, (one, other) in enumerate(zip(old_arguments, arguments, strict=False), 1):
            if one != other and (other in old_arguments or one in arguments):
                yield ChangedMeaning(f"place {number} among the functions of {operator_id}", str(one), str(other))
