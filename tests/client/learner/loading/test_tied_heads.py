"""A separate head in a folder whose configuration ties it to the embedding."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.model_folders import change_json, change_weights, refusals, service_of
from support.policies import make_policy_folder
from transformers import AutoModelForCausalLM

from sapo_client.learner.service import Service

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def one_file(_: Path) -> None:
    """Leave the weights in the file in which they are."""


def two_files(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    parts = [{HEAD: tensors.pop(HEAD)}, tensors]
    names = [f"model-{place}-of-00002.safetensors" for place in ("00001", "00002")]
    for name, part in zip(names, parts, strict=True):
        save_file(part, folder / name, metadata={"format": "pt"})
    placed = {key: name for name, part in zip(names, parts, strict=True) for key in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": placed}))


def pickled(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")


def tied_folder(folder: Path, *, head_differs: bool) -> Path:
    make_policy_folder(folder, "llama")
    change_json(folder / "config.json", tie_word_embeddings=True)
    if not head_differs:
        change_weights(folder, lambda all_: all_ | {HEAD: all_[EMBEDDING].clone()})
    return folder


@pytest.mark.parametrize("write", [one_file, two_files, pickled])
def test_a_tied_head_with_values_of_its_own_is_refused_by_doctor_and_learner(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    folder = tied_folder(tmp_path / "model", head_differs=True)
    write(folder)
    text = (
        f"the config.json of {str(folder)!r} ties {HEAD} to {EMBEDDING} (tie_word_embeddings), and its"
        " weights have different values of both"
    )
    hint = (
        "set tie_word_embeddings = false in it if the model has a head of its own; if not, remove"
        " lm_head.weight from the weights"
    )
    assert refusals(folder) == [(text, hint)] * 2


def test_a_folder_changed_as_in_the_hint_is_accepted(tmp_path: Path) -> None:
    """The head is trained apart from the embedding, or there is none."""
    folder = tied_folder(tmp_path / "model", head_differs=True)
    change_json(folder / "config.json", tie_word_embeddings=False)
    assert refusals(folder) == []
    assert parameters(service_of(folder, fresh=True)) == apart(folder)
    change_json(folder / "config.json", tie_word_embeddings=True)
    change_weights(folder, lambda all_: {name: each for name, each in all_.items() if name != HEAD})
    assert refusals(folder) == []
    assert parameters(service_of(folder, fresh=True)) == apart(folder)


@pytest.mark.parametrize("write", [one_file, two_files, pickled])
def test_a_tied_head_that_is_stored_twice_with_equal_values_is_accepted(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    folder = tied_folder(tmp_path / "model", head_differs=False)
    write(folder)
    assert refusals(folder) == []
    assert parameters(service_of(folder, fresh=True)) == apart(folder)


def parameters(service: Service) -> object:
    return service.about()["parameters"]


def apart(folder: Path) -> int:
    """Return the number of a folder's parameters as transformers loads it, tied ones once."""
    return sum(each.numel() for each in AutoModelForCausalLM.from_pretrained(folder).parameters())
