"""Models of one location without slots: log compaction, and copies of a location that write to the same outputs."""
