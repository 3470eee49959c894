"""Search spaces: what can be decided, the network of every decision, and the supernet that holds them all."""
