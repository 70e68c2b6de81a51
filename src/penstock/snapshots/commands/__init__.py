"""What people and tools do with the snapshots of a location, one verb per module; without a command line."""
