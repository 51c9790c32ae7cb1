"""A whole swarm on this machine: chain, contracts, nodes, attackers, live view, report.

The parts are the real ones: nodes are `sapo join` processes, the chain is the embedded one, attackers are
peers of the swarm. All data about a node is read from that node's event file.
"""
