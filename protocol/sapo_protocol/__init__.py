"""The wire format and its meaning: pure functions of bytes and values."""
