"""What a node's own checks have shown about each account."""
