"""Weights of a model: whether its folder has all of them, and why it cannot be read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Final

from sapo_client.errors import ExitCode, SapoError

UNREADABLE: Final = (
    OSError,
    ValueError,
    RuntimeError,
    ImportError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    EOFError,
    UnpicklingError,
)
"""Errors of transformers and its libraries for a folder that they cannot read, beside safetensors'."""

_POINTER: Final = b"version https://git-lfs"
_OBJECTS: Final = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "model.safetensors.index.json",
    "pytorch_model.bin.index.json",
)
_NAMED: Final = 3
"""Tensors that an error names."""


@dataclass(frozen=True, slots=True)
class UnusedWeights:
    """Weights in a model's files that the model of its ``config.json`` has no place for.

    Attributes:
        text: which, as a sentence.
        hint: what to do.
    """

    text: str
    hint: str

    @property
    def notice(self) -> str:
        """Both in one line."""
        return f"{self.text}; {self.hint}"


def unused_weights(name: str, report: dict[str, Any]) -> UnusedWeights | None:
    """Return the weights that a model is computed without, although its files have them; None without any.

    Args:
        name: folder or hub name.
        report: transformers' report of the loading; what an architecture leaves out on purpose is not in it.
    """
    if not (found := report["unexpected_keys"]):
        return None
    return UnusedWeights(
        f"the model {name!r} has weights that are not used, for it has no place for them: {some(found)}",
        "correct its config.json if they belong to the model (as num_hidden_layers, attention_bias), or leave"
        " them out of its files",
    )


def require_all_weights(name: str, model: Any, report: dict[str, Any]) -> None:
    """Raise unless every weight came from the folder; transformers would make the others up.

    Args:
        name: folder or hub name.
        model: as loaded.
        report: transformers' report of the loading; weights that are tied to others are not in it.

    Raises:
        SapoError: weights are missing, or of other sizes.
    """
    others = {
        f"{tensor} is {_size(found)} and not {_size(wanted)}"
        for tensor, found, wanted in report["mismatched_keys"]
    }
    if others:
        raise SapoError(
            f"the model {name!r} has weights of other sizes than its config.json says: {some(others)}",
            hint="config.json and the files of weights must be of one model; copy the folder again",
            exit_code=ExitCode.CONFIG,
        )
    missing = report["missing_keys"]
    if missing:
        hint = (
            "its tensors must be named as transformers names those of "
            f"{type(model).__name__}; they would be random"
        )
        if set(missing) == {"lm_head.weight"}:
            hint = "set tie_word_embeddings = true in its config.json if its head is its embedding; else copy"
            hint += " the folder again, for it would be random"
        raise SapoError(
            f"the model {name!r} lacks weights: {some(missing)}",
            hint=hint,
            exit_code=ExitCode.CONFIG,
        )


def unreadable(name: str, error: BaseException, *, hint: str) -> SapoError:
    """Return the error for a model that cannot be loaded.

    Args:
        name: folder or hub name.
        error: what was raised.
        hint: what to do if the folder does not show the reason.
    """
    why = first_line(error)
    pointers, folder = _pointers(Path(name)), Path(name)
    if (folder / "config.json").is_file():  # it is a model's folder
        hint = "copy the folder again, or take another model"
    if isinstance(error, FileNotFoundError) or (why.startswith("Error no file") and _shards(folder)):
        hint = "copy the folder again: it lacks a file of its weights, or their model.safetensors.index.json"
    elif "backend tokenizer" in why and not (folder / "tokenizer.json").is_file():
        why, hint = "it has no tokenizer.json", "copy the tokenizer's files into the folder"
    elif isinstance(error, json.JSONDecodeError) and (damaged := _damaged_json(folder)):
        why, hint = f"{damaged[0]} is no valid JSON: {why}", "copy the folder again"
    elif isinstance(error, AttributeError | TypeError) and (others := _other_json(folder)):
        why = f"{others[0]} is no JSON object"
    elif damaged := _damaged_parts(folder):
        why = f"{damaged[0]} is damaged: {why}"
    if why.startswith("Error no file") and not _shards(folder) and (others := _other_weights(folder)):
        why = f"it has no model.safetensors, but {some(others)}"
        if (folder / "model.safetensors").is_dir():
            why = "its model.safetensors is a folder, not a file"
        hint = "give the weights as transformers' save_pretrained() writes them; other formats are not read"
    elif why.startswith("Weights only load failed"):
        why = "its file of weights (.bin) holds more than tensors, and such a file can run code"
        hint = "take the model in safetensors, or write it again with save_pretrained() where you trust it"
    if pointers:
        why = f"{pointers[0]} is a pointer of git-lfs, not the file itself"
        hint = "fetch the files themselves: git lfs pull, in the folder's repository"
    elif isinstance(error, ImportError) and (method := _quantisation(Path(name))):
        hint = f"its weights are quantised by {method!r}: install what that needs, or take a model in floats"
    return SapoError(f"cannot load the model {name!r}: {why}", hint=hint, exit_code=ExitCode.CONFIG)


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says, or its kind if it says nothing."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    why = lines[0] if lines else type(error).__name__
    return f"an entry {why} is missing" if isinstance(error, KeyError) else why


def _shards(folder: Path) -> list[Path]:
    """Return the parts in which a folder has its weights."""
    return [*folder.glob("model-*-of-*.safetensors"), *folder.glob("pytorch_model-*-of-*.bin")]


def _other_weights(folder: Path) -> list[str]:
    """Return the names of a folder's files and broken links that may be weights, under other names."""
    kinds = ("*.safetensors", "*.bin", "*.pth", "*.pt", "*.gguf", "*.h5", "*.msgpack", "*.onnx")
    found = sorted(each for kind in kinds for each in folder.glob(kind))
    return [each.name if each.exists() else f"{each.name}, a link to a missing file" for each in found]


def _damaged_json(folder: Path) -> list[str]:
    """Return the names of a folder's files that should be JSON and are not."""
    found = []
    for file in sorted(folder.glob("*.json")):
        try:
            json.loads(file.read_text("utf-8"))
        except ValueError:
            found.append(file.name)
    return found


def _other_json(folder: Path) -> list[str]:
    """Return the names of a folder's files that should hold a JSON object and hold something else."""
    found = []
    for name in _OBJECTS:
        try:
            content = json.loads((folder / name).read_text("utf-8"))
        except (OSError, ValueError):
            continue
        if not isinstance(content, dict):
            found.append(name)
    return found


def _damaged_parts(folder: Path) -> list[str]:
    """Return the names of a folder's files of weights whose headers cannot be read."""
    from safetensors import SafetensorError, safe_open

    found = []
    for file in sorted(each for each in folder.glob("model*.safetensors") if each.is_file()):
        try:
            with safe_open(file, framework="pt"):
                pass
        except (SafetensorError, OSError):
            found.append(file.name)
    return found


def _pointers(folder: Path) -> list[str]:
    """Return the names of a folder's files that git-lfs would replace."""
    files = sorted(each for each in folder.glob("*") if each.is_file()) if folder.is_dir() else []
    found = []
    for file in files:
        with file.open("rb") as opened:
            if opened.read(len(_POINTER)) == _POINTER:
                found.append(file.name)
    return found


def _quantisation(folder: Path) -> str | None:
    """Return the method by which a folder's weights are quantised, by its ``config.json``."""
    file = folder / "config.json"
    if not file.is_file():
        return None
    settings = json.loads(file.read_text("utf-8")).get("quantization_config") or {}
    method = settings.get("quant_method")
    return None if method is None else str(method)


def _size(shape: Iterable[int]) -> str:
    return " x ".join(map(str, shape))


def some(names: Iterable[str]) -> str:
    """Return the first of the names and how many more there are."""
    ordered = sorted(names)
    more = f" and {len(ordered) - _NAMED} more" if len(ordered) > _NAMED else ""
    return ", ".join(ordered[:_NAMED]) + more
