"""Files of weights in other formats or under other names, and files that hold more than tensors."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.model_folders import refusals
from support.policies import make_policy_folder

OTHERS = "give the weights as transformers' save_pretrained() writes them; other formats are not read"
MORE = "take the model in safetensors, or write it again with save_pretrained() where you trust it"


def named(name: str) -> Callable[[Path], None]:
    def rename(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / name)

    return rename


def link(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(folder / "blobs" / "0123")


class Spoiled:
    """Creates a folder where it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (self.folder,)


def pickle_code(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"x": Spoiled(folder / "ran")}, folder / "pytorch_model.bin")


def folder_instead(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").mkdir()


FILES: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "Mistral's format": (
        named("consolidated.safetensors"),
        "it has no model.safetensors, but consolidated.safetensors",
        OTHERS,
    ),
    "llama.cpp's format": (named("model-q4.gguf"), "it has no model.safetensors, but model-q4.gguf", OTHERS),
    "a broken link": (
        link,
        "it has no model.safetensors, but model.safetensors, a link to a missing file",
        OTHERS,
    ),
    "a folder of that name": (folder_instead, "its model.safetensors is a folder, not a file", OTHERS),
    "code": (
        pickle_code,
        "its file of weights (.bin) holds more than tensors, and such a file can run code",
        MORE,
    ),
}


@pytest.mark.parametrize("kind", FILES)
def test_other_weight_files_are_reported_in_one_line(tmp_path: Path, kind: str) -> None:
    folder = make_policy_folder(tmp_path / "model")
    change, why, hint = FILES[kind]
    change(folder)
    assert refusals(folder) == [(f"cannot load the model {str(folder)!r}: {why}", hint)] * 2
    assert not (folder / "ran").exists()
