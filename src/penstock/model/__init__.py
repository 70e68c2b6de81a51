"""The job as data: vertices, edges, key groups."""
