"""Simulation of dishonest auditors on the real contracts: effects of one to three of four on a ledger."""
