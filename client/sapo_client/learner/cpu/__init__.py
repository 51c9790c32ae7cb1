"""Fast path for small Llama-style models (Qwen2, Llama) in float32 on a CPU.

``fast_decoder`` samples, ``fast_forward`` computes log-probabilities for training of what ``packing`` has
laid out, ``mlp`` the feed-forward halves of its layers, ``fused_layers`` holds the layer weights that both
use, ``kept_states`` what training takes over from sampling, ``linear`` calls oneDNN, ``allocator`` tunes
glibc's malloc.

Nothing outside this folder depends on it for correctness: other architectures and devices go through
transformers, and the results are the same within rounding (``tests/client/learner/cpu``).

Private interfaces of PyTorch: ``linear`` calls ``torch.ops.mkldnn._linear_pointwise`` and
``torch.ops.mkldnn._reorder_linear_weight``, ``fast_forward`` calls ``torch.ops.aten._softmax_backward_data``,
``mlp`` calls ``torch.ops.aten.silu_backward``.
The two mkldnn operators are optional: a build or release of PyTorch that lacks either, or in which a call
fails, falls back to ``torch.nn.functional.linear`` (``linear`` says how, and tests remove them). The aten
operators are generated from PyTorch's own derivative formulas and exist in every build.
"""
