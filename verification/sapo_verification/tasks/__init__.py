"""Task generators, extraction of answers, and scorers."""
