"""Asks the router of a home network to forward a TCP port to this node, by UPnP (Internet Gateway Device).

| file | what it does |
| --- | --- |
| `answers.py` | what a router says, parsed; pure |
| `ssdp.py` | finds routers, by multicast |
| `igd.py` | process of its own that talks to one router, by miniupnpc |
| `calls.py` | starts that process and reads its line |
| `mapper.py` | when to ask, to renew and to give back |

Any host in the local network can answer as a router. So its answers are bounded and parsed strictly, they
cannot direct this node to another host, and its claims are not sent to peers, which receive only addresses at
which other peers reached this node.
"""
