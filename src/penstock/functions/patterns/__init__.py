"""``like``, regular expressions and ``split``."""
