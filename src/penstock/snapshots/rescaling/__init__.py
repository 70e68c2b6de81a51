"""Snapshots for another parallelism or another plan."""
