"""The level `worked`: worked solutions of its families, and items beyond its ranges."""
