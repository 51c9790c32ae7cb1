"""Training rounds and what guards them."""
