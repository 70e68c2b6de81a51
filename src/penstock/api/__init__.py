"""PySpark's surface for defining and starting queries: session, writer, triggers, sinks, start."""
