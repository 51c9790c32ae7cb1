"""Losses other than that of ``grpo.py``, and the gradients of a loss in micro-batches."""
