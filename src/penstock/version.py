"""Penstock's release. Both ends of a link must have the same release."""

__version__ = "0.1.0"
