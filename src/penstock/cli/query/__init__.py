"""``penstock query``: looks at queries and steers them, through the REST service of their driver."""
