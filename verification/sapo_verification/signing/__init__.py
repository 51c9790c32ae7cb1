"""The signing database, which ensures that a slot is signed once."""
