"""The level `worked`: worked solutions of its families, and items outside its ranges."""
