"""Text files, and what the formats with a row per line share."""
