"""Portable snapshots: one directory of Parquet files, Arrow streams and a manifest, for other programs to read."""
