"""An embedded chain for swarms on one machine: Ethereum's execution specification on SQLite, behind JSON-RPC.

It keeps every transaction that it has acknowledged through any kill of its process: one SQL transaction
holds a block's state, its index and its head, and is on disk before the sender gets an answer.

What it is not: it has no peers, no consensus, no reorganisations and one transaction per block. Whoever
can write to its data directory owns it. A swarm of strangers needs a public network.
"""

from typing import Final

DEFAULT_CHAIN_ID: Final = 7_276_001
"""A number that no public network is known by, so that no signature made here counts elsewhere."""

ENDPOINT_FILE: Final = "endpoint"
"""Name of the file, in the chain's folder, that holds its URL once it listens."""
