"""Transport over py-libp2p 0.8.1, with a fix for each fault of that release, one subject per file.

`docs/upstream/py-libp2p/` holds the same fixes as patches.

| file | stock library | here |
| --- | --- | --- |
| `host.py` | offers plaintext and secio beside Noise | Noise only |
| `connections.py` | an inbound slot is held until the process ends | freed with its connection |
| `muxer.py` | any number of streams, any amount of buffered bytes | both bounded |
| `stream_guard.py` | one malformed frame ends the process | its stream is reset, its peer disconnected |
| `frames.py` | reads one byte at a time | reads what has arrived |
| `gossip.py` | bool validators, a task per message, short queues | three verdicts, metered, longer queues |
| `mesh.py` | unbounded memories, amplifying replies | bounded |
| `message_cache.py` | keyed by author and sequence number | keyed by content |
| `score_bridge.py` | blames a forwarder for every drop | answers from our own scores |
"""
