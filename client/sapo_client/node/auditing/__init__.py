"""Audits of other nodes' rollouts, settlement of epochs, disputes."""
