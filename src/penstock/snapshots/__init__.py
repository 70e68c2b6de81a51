"""Snapshot layout, log, metadata, catalog, ownership and garbage collection."""
