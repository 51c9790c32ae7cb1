"""Parts of a learner on other machines: training on a Tinker server, sampling on a vLLM server."""
