"""An in-memory carrier with the transport's interface."""
