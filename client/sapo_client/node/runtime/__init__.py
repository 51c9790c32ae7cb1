"""Shared parts of a node's services: context, clock, beacons, transport, telemetry, supervisor."""
