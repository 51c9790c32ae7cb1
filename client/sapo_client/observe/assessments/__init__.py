"""Health findings of one subject each: pure functions from facts to findings."""
