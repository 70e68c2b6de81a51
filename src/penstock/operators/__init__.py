"""Vectorized operators over Arrow batches, one operator per file."""
