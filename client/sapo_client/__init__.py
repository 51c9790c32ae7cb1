"""The client of a swarm: command line, node, learner, transport, ledger and observation."""
