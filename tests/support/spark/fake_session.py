"""A session of which only the settings matter."""

from __future__ import annotations

import sys
from types import SimpleNamespace


class FakeSession:
    """``settings`` by name; ``total`` slots that Spark would tell of."""

    def __init__(self, master: str, settings: dict[str, str] | None = None, total: int = 0) -> None:
        self._settings = settings or {}
        self.sparkContext = self._conf = self
        self.master = master
        self.applicationId = f"app-{id(self)}"
        self.pythonExec = sys.executable
        profiles = SimpleNamespace(defaultResourceProfile=lambda: None)
        context = SimpleNamespace(resourceProfileManager=lambda: profiles, maxNumConcurrentTasks=lambda profile: total)
        self._jsc = SimpleNamespace(sc=lambda: context)

    def get(self, name: str, default: str | None = None) -> str | None:
        return self._settings.get(name, default)
