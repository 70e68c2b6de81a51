"""Aggregations: partial, final, over session windows."""
