"""Runs of an experiment on other machines."""
