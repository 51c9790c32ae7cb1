"""From a message to an admitted object: stages 0 to 7."""
