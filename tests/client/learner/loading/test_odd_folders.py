"""Folders that newcomers bring: each is refused by doctor and learner with one line that says what to do."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.model_folders import change_json, change_weights, doctored, refusals, service_of
from support.policies import make_policy_folder
from transformers import AutoModelForCausalLM

from sapo_client.errors import SapoError
from sapo_client.learner.sizing.skeleton import make_skeleton

ANEW = "copy the folder again, or take another model"


def shards(folder: Path) -> list[Path]:
    """Write the weights in parts; return these."""
    AutoModelForCausalLM.from_pretrained(folder).save_pretrained(folder, max_shard_size="40KB")
    (folder / "model.safetensors").unlink()
    return sorted(folder.glob("model-*.safetensors"))


def empty_a_part(folder: Path) -> None:
    shards(folder)[1].write_bytes(b"")


def list_as_index(folder: Path) -> None:
    shards(folder)
    (folder / "model.safetensors.index.json").write_text("[]")


def list_as_settings(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text("[]")


def list_as_config(folder: Path) -> None:
    (folder / "config.json").write_text("[]")


def no_kind(folder: Path) -> None:
    (folder / "config.json").write_text('{"hidden_size": 48}')


def no_layers(folder: Path) -> None:
    change_json(folder / "config.json", num_hidden_layers=0)


def integers(folder: Path) -> None:
    change_weights(folder, lambda all_: {name: (9 * each).to(torch.int8) for name, each in all_.items()})


def one_token_more(folder: Path) -> None:
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    count = json.loads((folder / "config.json").read_text())["vocab_size"]
    added = {"id": count, "content": "<|extra|>", "special": True, "normalized": False}
    content["added_tokens"].append({**added, "single_word": False, "lstrip": False, "rstrip": False})
    file.write_text(json.dumps(content))


ODD: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "empty part": (
        empty_a_part,
        "cannot load the model {}: model-00002-of-00006.safetensors is damaged: Error while deserializing"
        " header: header too small",
        ANEW,
    ),
    "index": (
        list_as_index,
        "cannot load the model {}: model.safetensors.index.json is no JSON object",
        ANEW,
    ),
    "settings": (
        list_as_settings,
        "cannot load the model {}: tokenizer_config.json is no JSON object",
        ANEW,
    ),
    "config": (
        list_as_config,
        "the config.json of {} is no JSON object",
        "copy the model's folder again",
    ),
    "kind": (
        no_kind,
        "the config.json of {} has no model_type, by which transformers knows the architecture",
        "copy the model's folder again",
    ),
    "layers": (
        no_layers,
        "the config.json of {} contradicts itself: it names 0 layers (num_hidden_layers)",
        "correct it, or copy the model's folder again",
    ),
    "integers": (
        integers,
        "the weights of {} are integers, and its config.json does not say how they are quantised:"
        " lm_head.weight, model.embed_tokens.weight, model.layers.0.input_layernorm.weight and 32 more",
        "take the model in floats, or copy the folder again with the config.json that has its"
        " quantization_config",
    ),
    "tokens": (
        one_token_more,
        "the tokenizer of {} has 272 tokens, and its model has embeddings of 271",
        "copy the tokenizer's files that belong to these weights into the folder; for tokens that were added"
        " later, the model needs resize_token_embeddings() and training",
    ),
}


@pytest.mark.parametrize("kind", ODD)
def test_doctor_and_learner_report_the_fault_and_its_fix_in_one_line(tmp_path: Path, kind: str) -> None:
    folder = make_policy_folder(tmp_path / "model", "llama")
    change, text, hint = ODD[kind]
    change(folder)
    assert refusals(folder) == [(text.format(repr(str(folder))), hint)] * 2


def test_a_gguf_file_is_refused_with_a_hint(tmp_path: Path) -> None:
    file = tmp_path / "model-q4.gguf"
    file.write_bytes(b"GGUF")
    with pytest.raises(SapoError) as caught:
        make_skeleton(str(file))
    assert (caught.value.text, caught.value.hint) == (
        f"{str(file)!r} is a file, not a model's folder",
        "GGUF files cannot be trained: take the model from which they were made, in safetensors",
    )


@pytest.mark.parametrize("kind", ["llama", "olmoe"])
def test_a_single_nan_is_found_at_any_position(tmp_path: Path, kind: str) -> None:
    """It may belong to a token or an expert that few texts need: each step with it would be undone."""
    folder = make_policy_folder(tmp_path / "model", kind)
    name = "model.embed_tokens.weight"

    def spoil(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        tensors[name][200, 7] = float("nan")
        return tensors

    change_weights(folder, spoil)
    assert [each.state for each in doctored(folder)] == ["warn", "ok"], "the doctor reads no values"
    with pytest.raises(SapoError) as caught:
        service_of(folder)
    assert (caught.value.text, caught.value.hint) == (
        f"the model {str(folder)!r} has weights that are no numbers (NaN): {name}",
        "copy the folder again, or take another model: each training step would be undone",
    )


def test_the_attention_implementation_of_a_configuration_is_ignored(tmp_path: Path) -> None:
    """The learner chooses one itself, and so does the doctor."""
    folder = make_policy_folder(tmp_path / "model", "llama")
    change_json(folder / "config.json", attn_implementation="flash_attention_2")
    assert refusals(folder) == []
