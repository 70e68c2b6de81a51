"""Job coordinator of one query on the driver: state machines, a command executor, and the service that runs them."""
