"""Checkpoints of Spark's own Structured Streaming: a query comes over from one, and its positions go back into one."""
