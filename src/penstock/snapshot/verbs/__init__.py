"""What ``penstock snapshot`` can do, one verb per module: functions over a location, without a command line."""
