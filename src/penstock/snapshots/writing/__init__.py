"""Writing of snapshots: from the captures of subtasks to data files."""
