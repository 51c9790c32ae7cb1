"""Audits of others' rollouts, settlement of epochs, disputes."""
