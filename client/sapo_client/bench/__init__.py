"""Benchmarks on this machine: the cost of a node's safety, always as a ratio within one run."""
