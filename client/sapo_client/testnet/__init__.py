"""A whole swarm on this machine: chain, contracts, nodes, attackers, live view, report.

Everything here drives the real parts from outside: nodes are `sapo join` processes, the chain is the
embedded one, attackers are peers of the swarm. What it knows about a node it read in that node's own
event file.
"""
