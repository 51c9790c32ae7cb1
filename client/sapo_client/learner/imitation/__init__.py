"""Learning from demonstrations: what is kept of others' right answers, and how it is trained."""
