"""Losses beside the one of ``grpo.py``, and the gradients of a loss in micro-batches."""
