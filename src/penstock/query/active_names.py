"""Names of active queries, unique within one Spark application, as in Spark."""

from __future__ import annotations

import threading

from penstock.errors import ConfigError


class ActiveNames:
    """Thread-safe; one instance per process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: set[tuple[str, str]] = set()

    def take(self, application: str, name: str) -> None:
        """Reserve a name.

        Raises:
            ConfigError: an active query has it.
        """
        with self._lock:
            if (application, name) in self._names:
                raise ConfigError(f"a query named {name!r} is active in this session; stop it or choose another name")
            self._names.add((application, name))

    def release(self, application: str, name: str) -> None:
        """Give the name back. Idempotent."""
        with self._lock:
            self._names.discard((application, name))


ACTIVE_NAMES = ActiveNames()
