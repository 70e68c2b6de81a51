"""File sources and file sinks, with a folder for each format."""
