"""Validation of gossip, introductions of new peers, catch-up."""
