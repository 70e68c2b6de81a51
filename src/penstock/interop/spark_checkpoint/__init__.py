"""Checkpoints of Spark's own Structured Streaming: import of a query from one, and export of its positions to one."""
