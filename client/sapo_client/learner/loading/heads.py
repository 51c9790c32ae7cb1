"""Heads that a configuration ties to the embedding although the weights hold another tensor for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import torch

from sapo_client.errors import ExitCode, SapoError

_ROWS: Final = 4096
"""Compared at once: what two heads differ in is mostly found in the first rows."""


def require_tied_heads(name: str, model: Any) -> None:
    """Raise if two weights that the configuration ties have different values.

    Programs do not agree on which one they take then: transformers takes both as they are, vLLM ties them.

    Args:
        name: folder or hub name.
        model: of transformers as loaded; on the device ``meta`` the folder's files are compared.

    Raises:
        SapoError: they have.
    """
    pairs = model.get_expanded_tied_weights_keys(all_submodels=True)
    for target, source in pairs.items():
        one, other = model.get_parameter(target), model.get_parameter(source)
        is_tied = _same_in_files(Path(name), target, source) if one.is_meta else one is other
        if not is_tied:
            raise SapoError(
                f"the config.json of {name!r} ties {target} to {source} (tie_word_embeddings), and its"
                " weights have different values of both",
                hint="set tie_word_embeddings = false in it if the model has a head of its own; if not,"
                f" remove {target} from the weights",
                exit_code=ExitCode.CONFIG,
            )


def _same_in_files(folder: Path, target: str, source: str) -> bool:
    """Whether two tensors have the same values in a folder's files, or one is in none of them."""
    with ExitStack() as stack:
        one, other = _of_names(_tensors(folder, stack), target, source)
        if one is None or other is None:
            return True
        count = int(one.get_shape()[0]) if hasattr(one, "get_shape") else len(one)
        return all(
            torch.equal(one[start : start + _ROWS], other[start : start + _ROWS])
            for start in range(0, count, _ROWS)
        )


def _of_names(tensors: Iterator[tuple[str, Any]], *names: str) -> list[Any | None]:
    """Return the tensors of parameters, which files may name with another prefix; None if there is none."""
    found: dict[str, Any] = {}
    for key, tensor in tensors:
        for name in names:
            if key == name or key.endswith(f".{name}") or name.endswith(f".{key}"):
                found.setdefault(name, tensor)
        if len(found) == len(names):
            break
    return [found.get(name) for name in names]


def _tensors(folder: Path, stack: ExitStack) -> Iterator[tuple[str, Any]]:
    """Yield names and tensors, or slices of files, of a folder's weights, from the files that are read."""
    from safetensors import safe_open

    files = sorted(folder.glob("model*.safetensors"))
    for file in files:
        opened = stack.enter_context(safe_open(file, framework="pt"))
        yield from ((key, opened.get_slice(key)) for key in opened.keys())  # noqa: SIM118  # is no mapping
    for file in () if files else sorted(folder.glob("pytorch_model*.bin")):
        try:
            yield from torch.load(file, map_location="cpu", weights_only=True, mmap=True).items()
        except RuntimeError:  # a file of PyTorch before 1.6 cannot be mapped; the learner compares its values
            return
