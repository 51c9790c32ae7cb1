"""`sapo export model`: the policy of a data directory, with the settings by which it was trained."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import trio
from support.file_limit import largest_file
from support.policies import make_policy_folder
from transformers import AutoModelForCausalLM

from sapo_client.account.export import export_model
from sapo_client.config import Config, LearnerConfig
from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.service import Service
from sapo_client.node.runtime.backends import learner_settings
from sapo_client.paths import DataDir

pytestmark = pytest.mark.usefixtures("without_bfloat16")  # logits are compared in float32

PROMPT = "12 + 7 =\n"
GROUP = {
    "prompt": PROMPT,
    "completions": [b"7", b"19"],
    "rewards": [0.0, 1.0],
    "external": True,
    "handle": None,
}


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    """Return an empty data directory."""
    return DataDir(tmp_path / "data").create()


def trained(data: DataDir, model: Path) -> Service:
    """Train adapters and write a checkpoint and the record of the run, as a node does."""
    config = LearnerConfig(model=str(model), lora_rank=4, learning_rate=1e-2, device="cpu")
    service = Service(learner_settings(config, data.learner, max_new_tokens=6, seed=0, fresh=False))
    service.call("train", {"groups": [GROUP]})
    service.call("checkpoint", {})
    data.config.write_text(Config(data_dir=data.root, learner=config).model_dump_json(), encoding="utf-8")
    return service


def logits(model: torch.nn.Module, service: Service) -> torch.Tensor:
    ids = torch.tensor([service._policy.encode_prompt(PROMPT)])
    with torch.no_grad():
        found: torch.Tensor = model(ids).logits
    return found


def test_adapters_are_exported_by_the_record_of_the_run(data: DataDir, tmp_path: Path) -> None:
    """The configuration names another model and no rank: the data directory knows better."""
    service = trained(data, make_policy_folder(tmp_path / "model"))
    assert trio.run(export_model, Config(data_dir=data.root), tmp_path / "out") == 1
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    assert torch.allclose(logits(exported, service), logits(service._policy.model, service), atol=1e-4)


@pytest.mark.parametrize("changes", [{"lora_rank": 0}, {"lora_rank": 8}, {"model": "bundled"}])
def test_the_export_uses_the_model_and_rank_of_the_checkpoint_and_not_of_the_record(
    data: DataDir, tmp_path: Path, changes: dict[str, Any]
) -> None:
    """A run that was refused, as with another rank, has left its settings behind."""
    service = trained(data, make_policy_folder(tmp_path / "model"))
    record = json.loads(data.config.read_text())
    record["learner"].update(changes)
    data.config.write_text(json.dumps(record))
    assert trio.run(export_model, Config(data_dir=data.root), tmp_path / "out") == 1
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    assert torch.allclose(logits(exported, service), logits(service._policy.model, service), atol=1e-4)


def test_a_model_that_has_moved_is_named_by_the_settings(data: DataDir, tmp_path: Path) -> None:
    service = trained(data, make_policy_folder(tmp_path / "model"))
    moved = (tmp_path / "model").rename(tmp_path / "moved")
    data.config.unlink()
    config = Config(data_dir=data.root, learner=LearnerConfig(model=str(moved)))
    assert trio.run(export_model, config, tmp_path / "out") == 1
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    assert torch.allclose(logits(exported, service), logits(service._policy.model, service), atol=1e-4)


def test_a_refusal_of_the_learner_is_reported_as_such(data: DataDir, tmp_path: Path) -> None:
    trained(data, make_policy_folder(tmp_path / "model"))
    (tmp_path / "model" / "config.json").unlink()
    with pytest.raises(SapoError, match=r"has no config\.json") as caught:
        trio.run(export_model, Config(data_dir=data.root), tmp_path / "out")
    assert caught.value.exit_code == ExitCode.CONFIG


def test_a_folder_without_space_for_the_policy_is_reported(data: DataDir, tmp_path: Path) -> None:
    trained(data, make_policy_folder(tmp_path / "model"))
    with largest_file(4096), pytest.raises(SapoError) as caught:
        trio.run(export_model, Config(data_dir=data.root), tmp_path / "out")
    told = f"the policy was not written to {tmp_path / 'out'}: the learner died during export: "
    assert caught.value.text.startswith(told)
    assert (caught.value.exit_code, "free space there" in caught.value.hint) == (ExitCode.DATA, True)


def test_without_a_record_the_export_uses_the_configuration(data: DataDir, tmp_path: Path) -> None:
    service = trained(data, make_policy_folder(tmp_path / "model"))
    data.config.unlink()
    config = LearnerConfig(model=str(tmp_path / "model"), lora_rank=4)
    assert trio.run(export_model, Config(data_dir=data.root, learner=config), tmp_path / "out") == 1
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    assert torch.allclose(logits(exported, service), logits(service._policy.model, service), atol=1e-4)


@pytest.mark.parametrize("content", ["{", "[]", json.dumps({"learner": {"lora_rank": "four"}})])
def test_an_unreadable_record_is_refused(data: DataDir, content: str) -> None:
    data.checkpoints.mkdir(parents=True)
    data.config.write_text(content, encoding="utf-8")
    with pytest.raises(SapoError, match=r"config\.json") as caught:
        trio.run(export_model, Config(data_dir=data.root), data.root / "out")
    assert caught.value.exit_code == ExitCode.DATA
