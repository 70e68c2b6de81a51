"""``penstock query``: shows and controls queries through the REST service of their driver."""
