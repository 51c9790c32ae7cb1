"""Transport of signed messages between nodes: gossip, requests, peer scores. Knows nothing of rollouts.

Two implementations of one interface (`transport.py`): real libp2p (`p2p/`) and an in-memory swarm
(`memory.py`) for tests and simulations. Importing this package loads neither trio nor libp2p.
"""
