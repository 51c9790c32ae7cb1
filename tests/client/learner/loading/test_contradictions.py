"""Configurations that contradict themselves or what is installed: refused by doctor and learner alike."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.model_folders import (
    change_json,
    change_weights,
    doctored,
    one_step,
    refusals,
    save_model,
    service_of,
)
from support.policies import make_policy_folder
from transformers import (
    BertConfig,
    PretrainedConfig,
    RecurrentGemmaConfig,
    ReformerConfig,
    RwkvConfig,
    StableLmConfig,
    XmodConfig,
)

from sapo_client.errors import SapoError
from sapo_client.learner.loading.folder import require_causal_sample
from sapo_client.learner.policy import load_policy

CORRECT = "correct it, or copy the model's folder again"
NOTHING = "its config.json contradicts itself or its weights: correct it, or copy the folder again"

CONTRADICTIONS: dict[str, tuple[dict[str, Any], str, str]] = {
    "padding": (
        {"pad_token_id": 32_000, "vocab_size": 32_000},
        "its padding token 32000 is not in its vocabulary of 32000",
        "set pad_token_id in it to null; the learner pads with the tokenizer's token",
    ),
    "kind of rotation": (
        {"rope_scaling": {"type": "new", "factor": 2.0}, "rope_parameters": None},
        "KeyError: 'new'",
        CORRECT,
    ),
    "settings of a rotation": (
        {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}, "rope_parameters": None},
        "KeyError: \"Missing required keys in `rope_parameters` for 'rope_type'='llama3': ",
        CORRECT,
    ),
    "activation": ({"hidden_act": "nope"}, "KeyError: 'nope'", CORRECT),
    "sizes": (
        {"vocab_size": -5, "pad_token_id": None},
        "RuntimeError: Trying to create tensor with",
        CORRECT,
    ),
    "quantisation": (
        {"quantization_config": [1]},
        "AttributeError: 'list' object has no attribute 'to_dict'",
        CORRECT,
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictory_settings_are_refused_in_one_line(tmp_path: Path, name: str) -> None:
    folder = make_policy_folder(tmp_path / "model", "llama")
    changes, why, hint = CONTRADICTIONS[name]
    change_json(folder / "config.json", **changes)
    found = refusals(folder)
    begins = f"the config.json of {str(folder)!r} contradicts itself: {why}"
    assert [(text[: len(begins)], of) for text, of in found] == [(begins, hint)] * 2
    assert "\n" not in found[0][0]
    with pytest.raises(SapoError) as caught:
        load_policy(str(folder), "cpu")
    assert "\n" not in caught.value.text


SIZES: dict[str, Any] = {
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def test_sizes_that_allow_no_forward_pass_are_refused_in_one_line(tmp_path: Path) -> None:
    """A rotation of three of twelve numbers, which come in pairs."""
    folder = save_model(tmp_path / "model", StableLmConfig, **SIZES, partial_rotary_factor=0.25)
    why = "RuntimeError: The size of tensor a (3) must match the size of tensor b (4) at non-singleton"
    text = f"the model {str(folder)!r} computes nothing: {why} dimension 3"
    assert refusals(folder) == [(text, NOTHING)] * 2


def test_an_encoder_that_is_no_language_model_is_refused(tmp_path: Path) -> None:
    folder = make_policy_folder(tmp_path / "model")
    ReformerConfig(is_decoder=False).save_pretrained(folder)
    why = "AssertionError: If you want to use `ReformerModelWithLMHead` make sure that `is_decoder=True`."
    text = f"the config.json of {str(folder)!r} contradicts itself: {why}"
    assert refusals(folder) == [(text, CORRECT)] * 2


def test_an_encoder_with_very_large_layers_is_refused_by_the_doctor(tmp_path: Path) -> None:
    """By its configuration alone: its layers have 0.6 billion parameters each."""
    folder = tmp_path / "model"
    BertConfig(
        hidden_size=7168, intermediate_size=28_672, num_hidden_layers=12, num_attention_heads=56
    ).save_pretrained(folder)
    with pytest.raises(SapoError) as caught:
        require_causal_sample(str(folder))
    text = f"the model {str(folder)!r} (BertLMHeadModel) is not causal: a later token changes"
    assert caught.value.text[: len(text)] == text


def test_an_encoder_whose_forward_pass_fails_is_refused(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", XmodConfig, **{**SIZES, "num_key_value_heads": 4})
    [told, learner] = refusals(folder)
    assert told == learner
    assert told[0].startswith(
        f"the model {str(folder)!r} computes nothing: ValueError: Input language unknown"
    )


WHOLE: dict[str, tuple[type[PretrainedConfig], dict[str, Any]]] = {
    "divides by the layers but one": (
        RwkvConfig,
        {"hidden_size": 48, "attention_hidden_size": 48, "num_hidden_layers": 2},
    ),
    "attends in every third layer": (
        RecurrentGemmaConfig,
        {**SIZES, "num_hidden_layers": 3, "lru_width": 48, "attention_window_size": 16},
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_decoder_that_cannot_be_cut_to_one_layer_passes_and_is_trained(tmp_path: Path, name: str) -> None:
    kind, sizes = WHOLE[name]
    folder = save_model(tmp_path / "model", kind, **sizes)
    assert [(each.name, each.state) for each in doctored(folder)] == [("model", "warn"), ("memory", "ok")]
    report = one_step(service_of(folder))
    assert (report["rolled_back"], report["gradient_norm"] > 0.0) == (False, True)


def infinite_norm(all_: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return all_ | {"model.norm.weight": all_["model.norm.weight"].index_fill(0, torch.tensor([0]), torch.inf)}


def infinite_row(all_: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return all_ | {"lm_head.weight": all_["lm_head.weight"].index_fill(0, torch.tensor([0]), torch.inf)}


@pytest.mark.parametrize("spoil", [infinite_norm, infinite_row])
def test_infinite_weights_are_refused(
    tmp_path: Path, spoil: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]
) -> None:
    """As float16 has them after an overflow: each step was undone, and the node went on without learning."""
    folder = make_policy_folder(tmp_path / "model", "llama")
    change_weights(folder, spoil)
    with pytest.raises(SapoError) as caught:
        load_policy(str(folder), "cpu")
    assert caught.value.text.startswith(
        f"the model {str(folder)!r} computes no numbers (NaN): its weights are"
    )
