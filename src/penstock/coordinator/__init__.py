"""Job coordinator of one query on the driver: pure state machines, a command executor, a service with thread and links."""
