"""Experiments that need no network: the bundled policy's pretraining and the swarm's controls."""
