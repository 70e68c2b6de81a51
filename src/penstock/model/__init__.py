"""Data model of the job: vertices, edges, key groups, snapshot metadata and control messages."""
