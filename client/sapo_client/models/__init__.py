"""Models that the package carries as data."""
