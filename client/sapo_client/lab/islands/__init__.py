"""Experiment: how fast a skill known on one island reaches the others."""
