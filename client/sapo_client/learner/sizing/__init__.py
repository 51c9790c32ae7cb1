"""Data types, optimizers and memory of a learner, chosen for the device before training starts."""
