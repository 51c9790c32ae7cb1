"""Test whether a model is causal: later tokens must not change the predictions of earlier ones."""

from __future__ import annotations

from typing import Any, Final

import torch

from sapo_client.errors import ExitCode, SapoError

RAISED_BY_MODELS: Final = (
    RuntimeError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    AssertionError,
)
"""Errors of transformers' architectures whose configuration contradicts itself or is cut short, or that look
at values where there are none."""

_TOKENS: Final = 8

_MAX: Final = {torch.float32: 1e-3}
_MAX_16_BIT: Final = 5e-2
"""Change of the earlier logits, relative to that of the later ones. Rounding makes 1e-7 in float32 and up to
1e-2 in 16 bits; an untrained BERT of two layers changes by 5e-3 (float32), a trained one by far more."""


def require_numbers(name: str, model: Any) -> None:
    """Raise if a model computes no logits, or no numbers, with which each step would be undone.

    Args:
        name: folder or hub name.
        model: of transformers, in evaluation mode.

    Raises:
        SapoError: it does not.
    """
    two = torch.zeros((1, 2), dtype=torch.long, device=model.device)
    try:
        with torch.no_grad():
            logits = model(input_ids=two, use_cache=False).logits
    except torch.OutOfMemoryError:
        raise
    except RAISED_BY_MODELS as error:
        raise not_computing(name, error) from error
    # a logit of minus infinity is a token that is never sampled; of infinity, no probability is a number
    if not logits.float().log_softmax(-1).isnan().any():
        return
    raise SapoError(
        f"the model {name!r} computes no numbers (NaN): its weights are damaged, or too large for their type",
        hint="copy the folder again; with adapters try learner.base = bfloat16 or float32",
        exit_code=ExitCode.CONFIG,
    )


def not_computing(name: str, error: BaseException) -> SapoError:
    """Return the error for a model that is built and raises where it computes logits.

    Args:
        name: folder or hub name.
        error: what was raised.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return SapoError(
        f"the model {name!r} computes nothing: {type(error).__name__}: {lines[0] if lines else 'no reason'}",
        hint="its config.json contradicts itself or its weights: correct it, or copy the folder again",
        exit_code=ExitCode.CONFIG,
    )


def require_causal(name: str, model: Any) -> None:
    """Raise unless the first half of a text has the same logits whatever its second half is.

    Encoders are loaded as language models without a word, and see the tokens that they predict: sampling and
    training would compute different functions.

    Args:
        name: folder or hub name.
        model: of transformers, in evaluation mode.

    Raises:
        SapoError: it is not causal.
    """
    if not is_causal(model):
        raise SapoError(
            f"the model {name!r} ({type(model).__name__}) is not causal: a later token changes the"
            " predictions before it, as in encoders such as BERT",
            hint="take a causal (decoder) language model, as Qwen/Qwen2.5-0.5B-Instruct",
            exit_code=ExitCode.CONFIG,
        )


@torch.no_grad()
def is_causal(model: Any) -> bool:
    """Whether the first half of a text has the same logits whatever its second half is.

    Args:
        model: of transformers, in evaluation mode.
    """
    table = model.get_input_embeddings()
    count, half = table.num_embeddings, _TOKENS // 2
    one = torch.arange(_TOKENS, device=model.device) % count
    other = torch.cat([one[:half], (one[half:] + max(1, count // 2)) % count])
    logits = [model(input_ids=ids[None], use_cache=False).logits[0].float() for ids in (one, other)]
    changes = (logits[0] - logits[1]).abs()
    max_ratio = _MAX.get(table.weight.dtype, _MAX_16_BIT)
    return not bool(changes[:half].max() > max_ratio * changes[half:].max())  # NaN is no sign of an encoder
