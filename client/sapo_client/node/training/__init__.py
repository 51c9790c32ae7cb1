"""Training rounds, the canary, and protection against a second process of the same identity."""
