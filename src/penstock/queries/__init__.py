"""Running queries: handle, registry, progress, and the data and operations behind the REST service."""
