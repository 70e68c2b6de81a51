"""User functions in a process of their own: ``function.isolation=process``."""
