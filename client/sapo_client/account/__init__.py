"""Commands on an account's keys, rollouts and ledger entries; they run beside a node, not in it."""
