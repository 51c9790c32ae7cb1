"""A module whose import fails, and not with an ImportError."""

SETTING = {"a": 1}["b"]
