"""Commands for operators of nodes and swarms: invitations, services, logs, pauses."""
