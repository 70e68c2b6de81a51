"""Running queries: handle, registry, progress, and what the REST service shows of them and does to them."""
