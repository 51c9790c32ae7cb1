"""The optional terms of a manifest of version 2, one module each; one left out means: as in version 1."""
