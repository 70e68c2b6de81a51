"""User functions in separate processes: ``function.isolation=process``."""
