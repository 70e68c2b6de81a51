"""What suites share: sessions and running queries, load generators, measuring sinks and stages, statistics."""
