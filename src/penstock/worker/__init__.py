"""Slots and their subtasks: the code that runs inside a Spark task."""
