"""The command `sapo`: its commands, one module per group, and their output."""
