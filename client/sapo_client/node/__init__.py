"""The node process: learner, swarm, ledger and observation, run together on trio."""
