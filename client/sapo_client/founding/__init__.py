"""Founding a swarm on a chain: deploy the contracts and write the manifest."""
