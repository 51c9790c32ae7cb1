"""Reputation of accounts from a node's own checks."""
