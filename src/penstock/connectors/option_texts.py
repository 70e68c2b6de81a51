"""Options of sources and sinks, with Spark's case-insensitive names. Unknown options are refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextvars import ContextVar

from penstock.config import LARGEST, natural, shown, unknown_option
from penstock.errors import ConfigError
from penstock.functions.core.zones import Zone

_ESCAPES = {"\\t": "\t", "\\r": "\r", "\\b": "\b", "\\f": "\f", '\\"': '"', "\\'": "'", "\\\\": "\\"}


OBEYED, NO_EFFECT, REFUSED = "obeyed", "no effect", "refused"
PAGES: ContextVar[tuple[list[OptionTexts], ...]] = ContextVar("pages", default=())
"""Collects the options that connectors read, while documentation is generated; empty otherwise."""


def _only(values: Collection[str]) -> str:
    if not values:
        return REFUSED
    return f"refused except {', '.join(f'`{value!r}`' if value.isspace() else f'`{value}`' for value in values)}"


class OptionTexts:
    """Options that are read one by one. ``finish`` refuses the options that were not read.

    Args:
        where: name of the source or sink for messages, for example ``csv source``.
        texts: the options as given.
        elsewhere: names of options that are read elsewhere; messages suggest them.

    Attributes:
        treatments: treatment of each option that was read, for the documentation.
    """

    def __init__(self, where: str, texts: Mapping[str, str], elsewhere: Sequence[str] = ()) -> None:
        self._where = where
        self._elsewhere = elsewhere
        self._texts = {name.lower(): (name, str(text)) for name, text in texts.items()}
        self._used: set[str] = set()
        self.treatments: dict[str, str] = {}
        for page in PAGES.get():
            page.append(self)

    def text(self, name: str, default: str = "") -> str:
        found = self.optional(name)
        return default if found is None else found

    def optional(self, name: str) -> str | None:
        self.treatments.setdefault(name, OBEYED)
        self._used.add(name.lower())
        found = self._texts.get(name.lower())
        return None if found is None else found[1]

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name, str(default)).strip().lower()
        if text not in ("true", "false"):
            raise self.bad(name, text, "choose true or false")
        return text == "true"

    def count(self, name: str) -> int | None:
        text = self.optional(name)
        if text is None:
            return None
        number = natural(text)
        if not number:
            raise self.bad(name, text, f"it must be a positive whole number up to {LARGEST}")
        return number

    def character(self, name: str, default: str, empty_allowed: bool = False) -> str:
        """Return an option that must be a single character. It may be written as an escape such as ``\\t``."""
        text = self.text(name, default)
        text = _ESCAPES.get(text, text)
        if len(text) != 1 and not (empty_allowed and text == ""):
            raise self.bad(name, text, "only a single character is supported")
        return text

    def only(self, name: str, supported: Collection[str]) -> str | None:
        """Return an option that supports only some values, compared case-insensitively; None if it is not given."""
        self.treatments[name] = _only(supported)
        text = self.optional(name)
        if text is not None and text.strip().lower() not in [value.lower() for value in supported]:
            raise self.bad(name, text, f"supported: {', '.join(supported)}")
        return text

    def only_pattern(self, name: str, supported: str) -> str | None:
        """Return a date or time pattern if it is the supported one; None if it is not given. Compares the case."""
        self.treatments[name] = _only([supported])
        text = self.optional(name)
        if text is not None and text != supported:
            raise self.bad(name, text, f"supported: {supported}")
        return text

    def time_zone(self, default: str) -> str:
        """Return the option ``timeZone``. ``default``: the session's time zone, used if the option is not given."""
        name = self.text("timeZone", default)
        try:
            Zone(name)
        except ValueError as error:
            raise self.bad("timeZone", name, "it is no time zone") from error
        return name

    def without_effect(self, *names: str) -> None:
        """Accept options that have no effect, for example on schema inference: the schema is always given."""
        for name in names:
            self.treatments[name] = NO_EFFECT
            self.optional(name)

    def has_refused(self, name: str) -> bool:
        """Return True if the option is given. The caller then refuses it, whatever its value."""
        self.treatments[name] = REFUSED
        return self.optional(name) is not None

    def unread(self) -> dict[str, str]:
        """Return the options that were not read, as given."""
        return {name: text for lower, (name, text) in self._texts.items() if lower not in self._used}

    def finish(self) -> None:
        unknown = sorted(name for lower, (name, _) in self._texts.items() if lower not in self._used)
        if unknown:
            known = sorted(name for name, how in self.treatments.items() if how != REFUSED)
            raise unknown_option(unknown[0], f"the {self._where}", known, self._elsewhere)

    def bad(self, name: str, text: str, hint: str) -> ConfigError:
        return ConfigError(f"option {name}={shown(text)} of the {self._where}: {hint}")
