"""Audits by sample: an account commits to its groups, a block hash draws some, auditors check these."""
