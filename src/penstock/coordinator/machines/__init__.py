"""State machines of the job coordinator. Pure: they take an event (and the time) and return commands."""
