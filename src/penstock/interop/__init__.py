"""Exchange with Spark: its checkpoints, and snapshots as DataFrames."""
