"""Damaged ``generation_config.json``: its end tokens were ignored, or the node ended."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.model_folders import one_step, refusals, service_of
from support.policies import make_policy_folder

from sapo_client.learner.policy import load_policy

DAMAGED: dict[str, tuple[str, str]] = {
    "cut": ('{"eos_token_id": [0, ', "no valid JSON: Expecting value: line 1 column 22 (char 21)"),
    "list": ("[]", "no JSON object"),
    "word": (
        '{"eos_token_id": "</s>"}',
        "wrong: eos_token_id is '</s>', not a token's id or a list of ids",
    ),
    "nested": (
        '{"eos_token_id": [[1], [5]]}',
        "wrong: eos_token_id is [[1], [5]], not a token's id or a list of ids",
    ),
    "numbers": (
        '{"num_beams": 4, "num_return_sequences": 8}',
        "wrong: `num_return_sequences` (8) has to be smaller or equal to `num_beams` (4).",
    ),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_settings_of_generation_are_refused_in_a_line(tmp_path: Path, damage: str) -> None:
    folder = make_policy_folder(tmp_path / "model")
    content, why = DAMAGED[damage]
    (folder / "generation_config.json").write_text(content)
    text = f"the generation_config.json of {str(folder)!r} is {why}"
    hint = "correct it or copy the model's folder again; its end tokens alone are used"
    assert refusals(folder) == [(text, hint)] * 2


ODD: dict[str, dict[str, Any]] = {
    "as Llama 2 had them": {"temperature": 0.9, "top_p": 0.6, "do_sample": False},
    "no temperature": {"temperature": 0.0, "top_k": 0, "max_length": 20, "max_new_tokens": 2048},
    "forced": {"forced_eos_token_id": 1, "suppress_tokens": [2, 3], "min_new_tokens": 5, "unknown": "x"},
    "no end": {"eos_token_id": None},
}


@pytest.mark.parametrize("odd", ODD)
def test_odd_settings_of_generation_are_not_used_and_do_not_hinder_the_export(
    tmp_path: Path, odd: str
) -> None:
    folder = make_policy_folder(tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps(ODD[odd]))
    assert refusals(folder) == []
    service = service_of(folder, fresh=True)
    assert one_step(service)["rolled_back"] is False
    service.call("export", {"folder": str(tmp_path / "exported")})
    exported = load_policy(str(tmp_path / "exported"), "cpu")
    assert exported.ends == load_policy(str(folder), "cpu").ends
