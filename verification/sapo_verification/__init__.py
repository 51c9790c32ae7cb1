"""From bytes to trusted, weighted rollouts; clock and randomness are passed in."""
