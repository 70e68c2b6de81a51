"""What people and tools do with the snapshots of a location; nothing here is part of a running query."""
