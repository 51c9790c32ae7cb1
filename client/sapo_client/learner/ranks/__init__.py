"""One learner in several processes, its ranks: what they share, how they start, and how they end together."""
