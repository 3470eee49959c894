"""What is deployed: a network with its preprocessing inside, exported, loaded by a runtime and timed."""
