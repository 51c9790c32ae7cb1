"""Measurements of this machine: what the safety of a node costs, always as a ratio within one run."""
