"""Launching slots as the tasks of one Spark barrier job."""
