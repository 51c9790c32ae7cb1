"""Validation of gossip, exchange of certificates, catch-up."""
