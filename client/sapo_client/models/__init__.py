"""Models in the package, as data files."""
