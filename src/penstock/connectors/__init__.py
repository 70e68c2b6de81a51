"""Sources and sinks, one file each."""
