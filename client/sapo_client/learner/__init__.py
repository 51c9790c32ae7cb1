"""The learner: a policy that samples, trains and checkpoints in a process of its own."""
