"""The node process: composition of learner, swarm, ledger and observation, on trio."""
