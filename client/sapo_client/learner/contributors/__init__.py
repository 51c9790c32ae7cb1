"""Backends that answer tasks and do not train."""
