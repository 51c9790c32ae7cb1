"""Attackers of an experiment: accounts without a model that publish composed groups of completions."""
