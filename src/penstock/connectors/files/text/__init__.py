"""Text files, and shared code of the formats with one row per line."""
