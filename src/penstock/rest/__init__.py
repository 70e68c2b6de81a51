"""REST service for the queries of this driver."""
