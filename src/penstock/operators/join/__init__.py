"""Joins of two streams, and of a stream with a static side."""
