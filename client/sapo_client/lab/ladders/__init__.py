"""A swarm of table policies whose levels follow it, and who tries to move them."""
