"""Loading models of several architectures, and refusal of unsupported ones."""

from pathlib import Path

import pytest
import torch
from support.policies import make_policy_folder
from transformers import AutoTokenizer

from sapo_client.cli.checks import Check, check_torch
from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.policy import load_policy
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_any_local_model_samples_and_trains(tmp_path: Path, kind: str) -> None:
    folder = make_policy_folder(tmp_path / "model", kind)
    service = Service(LearnerSettings(model=str(folder), directory=tmp_path / "run", max_new_tokens=6))
    arguments = {"prompts": ["6/8\n"], "completions_per_prompt": 4, "handles": [1]}
    (completions,) = service.call("generate", arguments)["completions"]
    group = {"prompt": "6/8\n", "completions": completions, "rewards": [1.0, 0.0, 0.0, 1.0]}
    before = [parameter.detach().clone() for parameter in service._policy.model.parameters()]
    report = service.call("train", {"groups": [{**group, "external": False, "handle": 1}]})
    assert (report["reencoded_groups"], report["clipped_share"], report["rolled_back"]) == (0, 0.0, False)
    after = service._policy.model.parameters()
    assert not all(torch.equal(*pair) for pair in zip(before, after, strict=True))


def test_dropout_is_disabled(tmp_path: Path) -> None:
    policy = load_policy(str(make_policy_folder(tmp_path, "gpt2")), "cpu")
    policy.model.train()
    ids = torch.arange(40, 60)[None]
    with torch.no_grad():
        assert torch.equal(policy.model(ids).logits, policy.model(ids).logits)


def test_the_chat_template_is_used_where_there_is_one(tmp_path: Path) -> None:
    plain = load_policy(str(make_policy_folder(tmp_path / "plain")), "cpu")
    chat = load_policy(str(make_policy_folder(tmp_path / "chat", chat=True)), "cpu")
    assert plain.decode(plain.encode_prompt("6/8\n")) == "6/8\n"
    assert chat.decode(chat.encode_prompt("6/8")) == "<user>6/8<answer>"


def test_a_missing_model_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SapoError, match="cannot load") as caught:
        load_policy(str(tmp_path / "nowhere"), "cpu")
    assert caught.value.exit_code == ExitCode.CONFIG


def test_a_damaged_model_is_reported(tmp_path: Path) -> None:
    weights = make_policy_folder(tmp_path) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(SapoError, match="cannot load"):
        load_policy(str(tmp_path), "cpu")


def test_a_tokenizer_larger_than_the_model_is_refused(tmp_path: Path) -> None:
    folder = make_policy_folder(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["one token too many"])
    tokenizer.save_pretrained(folder)
    with pytest.raises(SapoError, match="has 272 tokens, and its model has embeddings of 271"):
        load_policy(str(folder), "cpu")


def test_a_tokenizer_without_an_end_is_refused(tmp_path: Path) -> None:
    folder = make_policy_folder(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.eos_token = None
    tokenizer.save_pretrained(folder)
    with pytest.raises(SapoError, match="end-of-text"):
        load_policy(str(folder), "cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_missing_device_is_reported_alike_by_the_learner_and_the_doctor(tmp_path: Path) -> None:
    with pytest.raises(SapoError, match="no CUDA device here") as caught:
        load_policy(str(make_policy_folder(tmp_path)), "cuda")
    why, do = "finds no GPU", "repair the driver"
    if torch.version.cuda is None and torch.version.hip is None:
        why, do = "is built without CUDA", "install a build with CUDA"
    assert caught.value.text == f"no CUDA device here: PyTorch {torch.__version__} {why}"
    assert caught.value.hint.startswith(do)
    assert 'learner.device = "auto"' in caught.value.hint
    assert check_torch("cuda") == Check("torch", "fail", caught.value.text, caught.value.hint)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_fast_generator_agrees_on_cuda(tmp_path: Path) -> None:
    from sapo_client.learner.generate import generator_for
    from sapo_client.learner.logprobs import completion_logprobs

    policy = load_policy(str(make_policy_folder(tmp_path)), "cuda")
    prompts = [(40, 41, 42), (50,)]
    groups = generator_for(policy).sample(
        prompts, completions_per_prompt=8, max_new_tokens=16, temperature=1.0, seed=0
    )
    for prompt, group in zip(prompts, groups, strict=True):
        rows = [(prompt, completion.tokens) for completion in group]
        with torch.no_grad():
            values = completion_logprobs(policy.model, rows, policy.pad, 1.0).cpu()
        for row, completion in zip(values, group, strict=True):
            assert (row[: len(completion.logprobs)] - torch.tensor(completion.logprobs)).abs().max() < 1e-3
