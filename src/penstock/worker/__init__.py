"""A slot and its subtasks: what runs inside a Spark task."""
