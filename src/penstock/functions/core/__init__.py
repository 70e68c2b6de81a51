"""Code that all families use: expression trees, vectors, null rules, time zones, errors and size limits."""
