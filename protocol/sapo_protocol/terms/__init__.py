"""The optional terms of a manifest of version 2, one module each; without a term, version 1's rule holds."""
