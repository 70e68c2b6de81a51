"""Snapshots as Spark's data: a data source that reads them, and a writer that creates them from DataFrames."""
