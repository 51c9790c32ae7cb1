"""Two designs of audits in a large swarm: cost of an auditor, error of its count, and gain of attackers."""
