"""The catalogue of task families, and its reference page."""
