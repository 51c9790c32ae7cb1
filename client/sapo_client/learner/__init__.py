"""Learner: a policy that samples, trains and writes checkpoints in its own process."""
