"""The fast path for small Llama and Qwen2 models in float32 on a CPU."""
