"""Fields of CSV and JSON records as values."""
