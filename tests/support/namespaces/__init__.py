"""Real nodes in network namespaces of one machine, with delays, losses and routers between them."""
