"""`sapo lab simulate`: many nodes in one process, with the node's own admission, pool, sampler and scores."""
