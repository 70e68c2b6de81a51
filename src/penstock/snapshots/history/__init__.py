"""What became of the checkpoints of a location, over the runs of its query; nothing depends on it."""
