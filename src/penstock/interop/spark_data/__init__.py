"""Snapshots as Spark's data: a data source that reads them, and a writer that makes them from DataFrames."""
