"""What an auditor costs in a large swarm, what its count errs by, and what attackers gain: two designs."""
