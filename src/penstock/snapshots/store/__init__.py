"""Storage of snapshots: local folders and object stores."""
