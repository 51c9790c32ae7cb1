"""Gradients at the leaves of a computation."""

from torch import Tensor


def gradient_of(leaf: Tensor) -> Tensor:
    """Return the gradient that a backward pass left at a tensor."""
    assert leaf.grad is not None
    return leaf.grad
