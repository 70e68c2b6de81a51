"""Format of snapshots: sections, metadata, plans, and checks of them."""
