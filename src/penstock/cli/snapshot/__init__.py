"""Commands of ``penstock snapshot``."""
