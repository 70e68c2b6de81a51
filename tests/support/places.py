"""Folders of the repository that tests read."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "penstock"
GOLDEN = ROOT / "tests" / "golden"
"""Locations and outputs that earlier versions wrote; they never change."""
