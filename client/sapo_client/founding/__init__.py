"""Founding a swarm on a chain that others run."""
