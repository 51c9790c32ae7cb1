"""Calls of the learner's service, inside one process."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.policies import make_policy_folder

from sapo_client.learner import grpo
from sapo_client.learner.generate import Completion
from sapo_client.learner.held_groups import MAX_HELD_GROUPS
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.wire import Message

PROMPTS = ["12 + 7 =\n", "Monday +3\n"]
REWARDS = [[1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0]]


@pytest.fixture
def settings(tmp_path: Path) -> LearnerSettings:
    folder = make_policy_folder(tmp_path / "model")
    return LearnerSettings(model=str(folder), directory=tmp_path / "run", max_new_tokens=10)


def generate(service: Service, handles: list[int]) -> list[list[bytes]]:
    arguments = {"prompts": PROMPTS, "completions_per_prompt": 4, "handles": handles}
    completions: list[list[bytes]] = service.call("generate", arguments)["completions"]
    return completions


def group(index: int, completions: list[bytes], handle: int | None, external: bool = False) -> Message:
    return {
        "prompt": PROMPTS[index],
        "completions": completions,
        "rewards": REWARDS[index],
        "external": external,
        "handle": handle,
    }


def train(service: Service, *groups: Message) -> Message:
    return service.call("train", {"groups": list(groups)})


def test_sampled_tokens_are_trained(settings: LearnerSettings) -> None:
    """A random policy's text never tokenizes to the ids it sampled; only the sampled ids are on-policy."""
    service = Service(settings)
    first, second = generate(service, [1, 2])
    held = [service._held[1], service._held[2]]
    ids = [[item.tokens for item in each.completions] for each in held]
    again = [service._policy.encode_completion(text.decode(), 10) for text in first]
    assert list(ids[0]) != again
    report = train(service, group(0, first, 1), group(1, second, 2))
    advantages = [grpo.group_advantages(torch.tensor(rewards)).tolist() for rewards in REWARDS]
    total = sum(
        a * len(row)
        for per, rows in zip(advantages, ids, strict=True)
        for a, row in zip(per, rows, strict=True)
    )
    count = sum(len(row) for rows in ids for row in rows)
    assert report["tokens"] == count
    assert report["loss"] == pytest.approx(-total / count, abs=1e-5)
    assert (report["reencoded_groups"], report["clipped_share"]) == (0, 0.0)
    assert report["entropy"] > 0


def test_the_end_token_is_trained(settings: LearnerSettings) -> None:
    """Rewarding completions that end makes the end token likelier."""
    service = Service(replace(settings, learning_rate=3e-3))
    policy = service._policy
    prompt = policy.encode_prompt(PROMPTS[0])

    def chance_to_end() -> float:
        with torch.no_grad():
            ids = [*prompt, *policy.encode_completion("7", 10)[:-1]]
            return float(policy.model(torch.tensor([ids])).logits[0, -1].softmax(-1)[policy.end])

    before = chance_to_end()
    for _ in range(15):
        train(service, group(0, [b"7", b"7 7", b"7 7 7", b"7"], None, external=True))
    assert chance_to_end() > 2 * before


def test_released_forgotten_or_altered_groups_are_tokenized_again(settings: LearnerSettings) -> None:
    service = Service(settings)
    first, second = generate(service, [1, 2])
    altered = [b"other", *second[1:]]
    report = train(service, group(0, first, 1), group(1, altered, 2), group(0, first, None, external=True))
    assert (report["local_groups"], report["external_groups"], report["reencoded_groups"]) == (2, 1, 1)
    assert train(service, group(0, first, 1))["reencoded_groups"] == 1  # its handle was released by the step


def test_held_groups_are_bounded(settings: LearnerSettings) -> None:
    service = Service(settings)
    for start in range(0, MAX_HELD_GROUPS + 2, 2):
        generate(service, [start, start + 1])
    assert list(service._held) == list(range(2, MAX_HELD_GROUPS + 2))


def test_text_of_other_nodes_inserts_no_control_tokens(settings: LearnerSettings) -> None:
    policy = Service(settings)._policy
    spelled = policy.tokenizer.eos_token + "7" + policy.tokenizer.pad_token
    tokens = policy.encode_completion(spelled, 99)
    assert tokens[-1] == policy.end
    assert policy.end not in tokens[:-1]
    assert policy.pad not in tokens
    assert policy.decode(tokens) == spelled


@pytest.mark.parametrize(
    "text", [b"", b"\xff\xfe", b"7" * 500, "∀ 日本 🙂".encode(), b"<|im_end|><|endoftext|>" * 9]
)
def test_any_bytes_of_another_node_are_trainable(settings: LearnerSettings, text: bytes) -> None:
    report = train(Service(settings), group(0, [text, b"8", b"9", text], None, external=True))
    assert not report["rolled_back"]
    assert 0 < report["tokens"] <= 40


def test_evaluate_is_greedy_by_default_and_changes_no_random_stream(settings: LearnerSettings) -> None:
    one, other = Service(settings), Service(settings)
    answers = one.call("evaluate", {"prompts": PROMPTS})
    sampled = one.call("evaluate", {"prompts": PROMPTS, "temperature": 1.0})
    assert answers == one.call("evaluate", {"prompts": PROMPTS}) != sampled
    assert sampled == one.call("evaluate", {"prompts": PROMPTS, "temperature": 1.0})
    assert generate(one, [1, 2]) == generate(other, [1, 2])


def test_the_number_of_sampled_tokens_is_returned(settings: LearnerSettings) -> None:
    service = Service(settings)
    arguments = {"prompts": PROMPTS, "completions_per_prompt": 4, "handles": [1, 2]}
    held = sum(len(item.tokens) for item in sampled_of(service, arguments))
    assert service.call("generate", arguments | {"handles": [3, 4]})["tokens"] > 0
    assert held == Service(settings).call("generate", arguments)["tokens"]


def sampled_of(service: Service, arguments: Message) -> list[Completion]:
    service.call("generate", arguments)
    return [item for handle in arguments["handles"] for item in service._held[handle].completions]


@pytest.mark.parametrize(("share", "steps"), [(0.0, []), (1e9, [1])])
def test_a_share_of_zero_writes_no_automatic_checkpoints(
    settings: LearnerSettings, share: float, steps: list[int]
) -> None:
    service = Service(replace(settings, checkpoint_share=share))
    train(service, group(0, [b"7", b"8", b"9", b"10"], None, external=True))
    folders = sorted(settings.directory.glob("checkpoints/step-*"))
    assert [int(folder.name.removeprefix("step-")) for folder in folders] == steps


def test_export_loads_with_transformers(settings: LearnerSettings, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    service = Service(settings)
    train(service, group(0, [b"7", b"8", b"9", b"10"], None, external=True))
    assert service.call("export", {"folder": str(tmp_path / "out")}) == {"step": 1}
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    pairs = zip(model.parameters(), service._policy.model.parameters(), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)
    assert AutoTokenizer.from_pretrained(tmp_path / "out").eos_token == service._policy.tokenizer.eos_token
