"""What every service of a node shares."""
