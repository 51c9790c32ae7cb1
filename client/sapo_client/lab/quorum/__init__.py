"""Auditors with strategies on the real contracts: what one of four, or three, can do to a ledger."""
