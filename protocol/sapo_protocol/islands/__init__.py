"""Islands: which part of a large swarm an account publishes in, and which parts a node hears."""
