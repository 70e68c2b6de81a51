"""History of a location's checkpoints over all runs of its query. Recovery does not depend on it."""
