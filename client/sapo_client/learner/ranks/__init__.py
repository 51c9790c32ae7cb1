"""A learner in several processes (ranks): communication, start, and common end."""
