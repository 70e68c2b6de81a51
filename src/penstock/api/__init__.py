"""The API a user holds: the writer, the running query, its progress and its listeners."""
