"""Links between processes: transport, frames, handshake, TLS and the messages of the control link."""
