"""Simulation of difficulty ladders that follow a swarm of table policies, and of attacks on them."""
