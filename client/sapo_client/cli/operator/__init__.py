"""Commands of those who run nodes and swarms: invitations, services, logs, pauses."""
