"""Mutants: small named ways to break the code, applied while a context is open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Patch:
    """``make`` turns the original function (or property) ``owner.attribute`` into the broken one.

    ``owner``: the class that defines it, or the module that uses it.
    """

    owner: Any
    attribute: str
    make: Callable[[Any], Any]


@dataclass(frozen=True)
class Mutant:
    """``text``: what it does wrong, as the end of the sentence "the protocol is broken:"."""

    text: str
    patches: tuple[Patch, ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Break the code of this process while the context is open."""
        originals = [(patch, vars(patch.owner)[patch.attribute]) for patch in self.patches]
        for patch, original in originals:
            setattr(patch.owner, patch.attribute, patch.make(original))
        try:
            yield
        finally:
            for patch, original in originals:
                setattr(patch.owner, patch.attribute, original)


def mutant(text: str, *patches: tuple[Any, str, Callable[[Any], Any]]) -> Mutant:
    """A mutant from (owner, attribute, make) triples."""
    return Mutant(text, tuple(Patch(*patch) for patch in patches))
