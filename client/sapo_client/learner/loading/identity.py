"""Identity of the model that a checkpoint belongs to: the content of its files, not their path."""

from __future__ import annotations

import hashlib
import json
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

from safetensors import SafetensorError, safe_open

from sapo_client.learner.loading.files import small_file

_WEIGHTS: Final = ("*.safetensors", "*.bin")
_SAMPLES: Final = 64
_SAMPLE_BYTES: Final = 4096
"""Read of each file of weights: one may have tens of gigabytes, and other training changes all of it."""


def model_digest(name: str) -> str | None:
    """Return a digest of a model's weights and configuration; None for one that has no files here.

    Args:
        name: as for ``load_policy``.
    """
    packaged = files("sapo_client") / "models" / name
    if "/" not in name and packaged.is_dir():
        with as_file(packaged) as folder:
            return _digest(folder)
    config = small_file(name, "config.json")
    return None if config is None else _digest(config.parent)


def checkpoint_model(checkpoints: Path) -> tuple[str, int] | None:
    """Return the model and the rank of the adapters of the newest checkpoint, 0 without adapters.

    Args:
        checkpoints: folder of a learner's checkpoints.

    Returns:
        None if no checkpoint can be read, or if its weights are on a server.
    """
    for folder in sorted(checkpoints.glob("step-*"), reverse=True):
        try:
            meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
            with safe_open(folder / "state.safetensors", framework="pt") as state:
                names: list[str] = state.keys()
                ranks = [state.get_slice(each).get_shape()[0] for each in names if ".lora_A." in each]
            return None if meta.get("remote") else (str(meta["model"]), max(ranks, default=0))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError):
            continue  # the learner passes over a damaged one as well
    return None


def _digest(folder: Path) -> str:
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for file in sorted(each for pattern in _WEIGHTS for each in folder.glob(pattern)):
        size = file.stat().st_size
        digest.update(f"{file.name}/{size}".encode())
        with file.open("rb") as opened:
            for sample in range(_SAMPLES):
                opened.seek(size * sample // _SAMPLES)
                digest.update(opened.read(_SAMPLE_BYTES))
    return digest.hexdigest()
