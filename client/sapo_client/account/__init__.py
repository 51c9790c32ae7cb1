"""Commands on an account's keys, rollouts and ledger; they run beside a node, not inside it."""
