"""The page of a node in the browser: history, rollouts, sessions, routes, and the files that it serves."""
