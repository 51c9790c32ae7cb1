"""Learning from demonstrations: storage of others' right answers, and training on them."""
