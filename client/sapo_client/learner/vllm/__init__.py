"""Sampling with vLLM in the learner's process: engine, weights and adapters."""
