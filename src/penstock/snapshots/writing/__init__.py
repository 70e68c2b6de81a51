"""From captures of subtasks to the files of a snapshot."""
