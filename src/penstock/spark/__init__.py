"""Integration with Spark: slots as the tasks of one Spark job, files and tables, sources, listeners."""
