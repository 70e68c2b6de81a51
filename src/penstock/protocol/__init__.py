"""Sans-I/O core: pure state machines that take an event (and the time) and return immutable commands."""
