"""The signing database: a slot is signed once."""
