"""From a stored snapshot to the state that subtasks start with."""
