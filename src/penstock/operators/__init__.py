"""Vectorised operators over Arrow batches, one per file."""
