"""IO shells around the protocol machines: slot process, transport, control link, coordinator service."""
