"""Weights that a configuration calls quantised by a method that transformers does not know."""

from pathlib import Path
from typing import Any

import pytest
from support.model_folders import change_json, refusals
from support.policies import make_policy_folder

HINT = (
    "take the model in floats or quantised by another method; if its files hold floats, remove"
    " quantization_config from its config.json"
)


@pytest.mark.parametrize(
    ("settings", "method"),
    [
        ({"quant_method": "mlx-4bit", "bits": 4}, "by the method 'mlx-4bit'"),
        ({"group_size": 64, "bits": 4}, "by a method that it does not name"),
    ],
)
def test_unknown_quantisation_is_refused_by_doctor_and_learner(
    tmp_path: Path, settings: dict[str, Any], method: str
) -> None:
    folder = make_policy_folder(tmp_path / "model", "llama")
    change_json(folder / "config.json", quantization_config=settings)
    text = (
        f"the config.json of {str(folder)!r} says that the weights are quantised {method}, which the"
        " installed transformers does not know"
    )
    assert refusals(folder, lora_rank=4) == [(text, HINT)] * 2


def test_a_folder_without_quantisation_settings_is_accepted(tmp_path: Path) -> None:
    folder = make_policy_folder(tmp_path / "model", "llama")
    change_json(folder / "config.json", quantization_config=None)
    assert refusals(folder, lora_rank=4) == []
