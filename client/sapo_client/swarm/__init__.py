"""Transport of signed messages between nodes: gossip, requests, peer scores. Independent of rollouts.

Two implementations of one interface (`transport.py`): real libp2p (`p2p/`) and an in-memory swarm
(`simulated/`) for tests and simulations. Importing this package loads neither trio nor libp2p.
"""
