"""The pool of admitted rollouts, and how a batch is drawn from it."""
