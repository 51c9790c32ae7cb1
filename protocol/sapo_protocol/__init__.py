"""What goes over the wire and what it means: pure functions of bytes and values."""
