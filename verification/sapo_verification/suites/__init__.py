"""The catalogue of task families, and the pages about it."""
