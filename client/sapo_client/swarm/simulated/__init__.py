"""In-memory implementation of the transport's interface, for tests and simulations."""
