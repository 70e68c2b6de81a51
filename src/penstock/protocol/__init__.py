"""The sans-IO core: pure machines that take an event (and the time) and return frozen commands."""
