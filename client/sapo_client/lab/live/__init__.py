"""The live page of an experiment."""
