"""The REST service: a face over queries that run in this driver."""
