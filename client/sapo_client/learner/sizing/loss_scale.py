"""Scale of the loss in float16, so that small gradients do not vanish and large ones do not overflow.

The scale halves when a gradient overflows, and the same rows are computed again; after a while without
overflow it doubles. PyTorch's GradScaler skips the optimizer's step instead; here no step is lost, and one
scale serves both optimizers. A gradient that overflows at every scale, or whose loss is not finite either, is
not the scale's fault: the step is undone, and the scale is what it was before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

FIRST_SCALE: Final = 2.0**16
GROWTH_STEPS: Final = 2000
"""As in PyTorch's GradScaler."""


class LossScale:
    """Scale of a loss, 1 where products are not float16.

    Args:
        products: data type of matrix products; None for the parameters' own.

    Attributes:
        value: by which losses are multiplied.
    """

    def __init__(self, products: torch.dtype | None) -> None:
        self.value = FIRST_SCALE if products is torch.float16 else 1.0
        self._active = products is torch.float16
        self._good = 0
        self._before = self.value

    def unscale(self, parameters: Sequence[Tensor]) -> None:
        """Divide the gradients by the scale."""
        if self._active:
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.grad.div_(self.value)

    def accepts(self, norm: float, loss: float = 0.0) -> bool:
        """Whether a gradient of this norm is to be used; if not, the scale is smaller now: compute it again.

        At scale 1 every gradient is accepted, for then it is the loss itself that is not finite.

        Args:
            norm: of the gradient, unscaled.
            loss: of its rows, unscaled.
        """
        if math.isfinite(norm) or self.value <= 1.0 or not math.isfinite(loss):
            if math.isfinite(norm):
                self._good += 1
                if self._active and self._good % GROWTH_STEPS == 0:
                    self.value *= 2.0
            else:
                self.value = self._before
            self._before = self.value
            return True
        self.value, self._good = self.value / 2.0, 0
        return False
