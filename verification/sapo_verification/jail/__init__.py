"""The jail: isolated processes in which untrusted answers are scored."""
