"""Penstock's release: what both ends of a link must have in common."""

__version__ = "0.1.0"
