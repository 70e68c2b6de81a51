"""What makes a run repeatable: virtual time, seeded choices, the scheduler and an object store in memory."""
