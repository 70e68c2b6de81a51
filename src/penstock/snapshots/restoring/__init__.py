"""Restore: from a stored snapshot to the initial state of subtasks."""
