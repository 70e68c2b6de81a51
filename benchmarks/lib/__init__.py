"""Helpers of several suites: sessions and running queries, load generators, measuring sinks and stages, statistics."""
