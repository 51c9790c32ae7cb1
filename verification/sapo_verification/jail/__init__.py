"""The jail in which strangers' answers are scored."""
