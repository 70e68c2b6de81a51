"""The jobs that schedules run: topology, operators, sources, sinks and the expected output."""
