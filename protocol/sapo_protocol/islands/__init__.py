"""Islands: the part of a large swarm in which an account publishes, and the parts to which a node
subscribes."""
