"""User API for defining and starting queries: sessions, writers, triggers, sinks, start."""
