"""Observation of a node: events, metrics, health, reports and the control API."""
