"""Experiments without a network: pretraining of the bundled policy, and controlled swarm experiments."""
