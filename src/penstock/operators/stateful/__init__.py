"""transformWithState: a user's StatefulProcessor over keyed tables."""
