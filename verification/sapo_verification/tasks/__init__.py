"""A task's generator, its answers and their scorers."""
