"""Snapshot commands: what the CLI, the REST service and other tools do with the snapshots of a location."""
