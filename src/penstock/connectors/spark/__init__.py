"""Sources that only the JVM can read, and sinks that hand DataFrames to Spark."""
