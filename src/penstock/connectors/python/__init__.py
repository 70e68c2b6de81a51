"""Python data sources and sinks (``pyspark.sql.datasource``)."""
