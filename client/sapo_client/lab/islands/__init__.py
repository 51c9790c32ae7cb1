"""How fast what one island learns reaches the others."""
