"""The two generators against transformers' forward pass."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

import pytest
import torch
from support.policies import make_policy_folder

from sapo_client.learner import generate
from sapo_client.learner.generate import Completion, FastGenerator, PlainGenerator, generator_for
from sapo_client.learner.policy import Policy, load_policy

PROMPTS = [(40, 41, 42), (50, 51, 52, 53, 54, 55, 56), (60,)]


class Arguments(TypedDict):
    """Arguments of ``Generator.sample`` beside the prompts."""

    completions_per_prompt: int
    max_new_tokens: int
    temperature: float
    seed: int


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Policy]:
    kinds = ("qwen2", "llama", "llama3-rope", "gpt2")
    root = tmp_path_factory.mktemp("models")
    return {kind: load_policy(str(make_policy_folder(root / kind, kind)), "cpu") for kind in kinds}


def reference_logprobs(
    policy: Policy, prompt: Sequence[int], tokens: Sequence[int], temperature: float
) -> torch.Tensor:
    """Compute the log-probabilities with transformers: one row, no padding, no cache."""
    with torch.no_grad():
        logits = policy.model(torch.tensor([[*prompt, *tokens]])).logits[0]
    table = (logits[len(prompt) - 1 : -1] / temperature).log_softmax(-1)
    chosen: torch.Tensor = table[torch.arange(len(tokens)), torch.tensor(tokens)]
    return chosen


def test_each_architecture_gets_its_generator(policies: dict[str, Policy]) -> None:
    chosen = {kind: type(generator_for(policy)) for kind, policy in policies.items()}
    fast = dict.fromkeys(("qwen2", "llama", "llama3-rope"), FastGenerator)
    assert chosen == {**fast, "gpt2": PlainGenerator}


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("kind", ["qwen2", "llama", "llama3-rope", "gpt2"])
def test_behaviour_logprobs_are_the_models(
    policies: dict[str, Policy], kind: str, temperature: float
) -> None:
    policy = policies[kind]
    groups = generator_for(policy).sample(
        PROMPTS, completions_per_prompt=6, max_new_tokens=24, temperature=temperature, seed=3
    )
    assert [len(group) for group in groups] == [6, 6, 6]
    for prompt, group in zip(PROMPTS, groups, strict=True):
        for completion in group:
            expected = reference_logprobs(policy, prompt, completion.tokens, temperature)
            assert len(completion.logprobs) == len(completion.tokens)
            assert (torch.tensor(completion.logprobs) - expected).abs().max() < 1e-5


@pytest.mark.parametrize("kind", ["qwen2", "llama3-rope"])
def test_rows_stop_at_their_end_token(policies: dict[str, Policy], kind: str) -> None:
    """The end token is made likely, so that rows leave the batch at many different steps."""
    policy = policies[kind]
    raised = policy.model.lm_head.weight.detach().clone()
    with torch.no_grad():
        policy.model.lm_head.weight[policy.end] *= 4
    groups = FastGenerator(policy).sample(
        PROMPTS, completions_per_prompt=32, max_new_tokens=40, temperature=2.0, seed=1
    )
    rows = [completion for group in groups for completion in group]
    ended = [row for row in rows if row.tokens[-1] == policy.end]
    assert len({len(row.tokens) for row in rows}) > 3
    assert ended
    for row in rows:
        assert policy.end not in row.tokens[:-1]
        assert len(row.tokens) == 40 or row.tokens[-1] == policy.end
        assert row.text == policy.tokenizer.decode(
            [t for t in row.tokens if t not in (policy.end, policy.pad)]
        )
    prompt, last = PROMPTS[2], groups[2][-1]
    assert (
        torch.tensor(last.logprobs) - reference_logprobs(policy, prompt, last.tokens, 2.0)
    ).abs().max() < 1e-5
    with torch.no_grad():
        policy.model.lm_head.weight.copy_(raised)


@pytest.mark.parametrize("kind", ["qwen2", "llama", "gpt2"])
def test_greedy_is_transformers_greedy(policies: dict[str, Policy], kind: str) -> None:
    policy = policies[kind]
    groups = generator_for(policy).sample(
        PROMPTS, completions_per_prompt=1, max_new_tokens=16, temperature=0.0, seed=0
    )
    for prompt, (completion,) in zip(PROMPTS, groups, strict=True):
        ids = torch.tensor([prompt])
        row = policy.model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=16
        )
        expected = row[0, len(prompt) :].tolist()
        assert completion.tokens == tuple(expected[: len(completion.tokens)])
        assert len(completion.tokens) == len(expected)


@pytest.mark.parametrize("kind", ["qwen2", "gpt2"])
def test_equal_seeds_give_equal_samples(policies: dict[str, Policy], kind: str) -> None:
    def sample(seed: int) -> list[list[Completion]]:
        return generator_for(policies[kind]).sample(
            PROMPTS, completions_per_prompt=4, max_new_tokens=8, temperature=1.0, seed=seed
        )

    assert sample(5) == sample(5)
    assert sample(5) != sample(6)


def test_samples_follow_the_distribution(policies: dict[str, Policy]) -> None:
    """The first token of 20,000 samples against its probabilities, within seven standard errors."""
    policy, count = policies["qwen2"], 20_000
    (group,) = FastGenerator(policy).sample(
        [PROMPTS[0]], completions_per_prompt=count, max_new_tokens=1, temperature=0.5, seed=0
    )
    with torch.no_grad():
        wanted = (policy.model(torch.tensor([PROMPTS[0]])).logits[0, -1] / 0.5).softmax(-1)
    seen = torch.bincount(torch.tensor([row.tokens[0] for row in group]), minlength=len(wanted)) / count
    error = (wanted * (1 - wanted) / count).sqrt()
    assert ((seen - wanted).abs() <= 7 * error + 2 / count).all()


def test_prompts_of_one_length_are_generated_together(
    policies: dict[str, Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each completion belongs to its own prompt, in the order of the prompts."""
    policy = policies["gpt2"]
    monkeypatch.setattr(generate, "MAX_ROWS", 4)
    prompts = [(40, 41, 42), (60,), (50, 51, 52), (43, 44, 45), (61,), (53, 54, 55, 56)]
    greedy: Arguments = {"completions_per_prompt": 2, "max_new_tokens": 6, "temperature": 0.0, "seed": 0}
    together = PlainGenerator(policy).sample(prompts, **greedy)
    assert together == [PlainGenerator(policy).sample([prompt], **greedy)[0] for prompt in prompts]
    parts = list(generate._of_equal_length(prompts, 2))
    assert parts == [[1, 4], [0, 2], [3], [5]]


def test_sampling_after_an_update_uses_the_new_weights(policies: dict[str, Policy], tmp_path: Path) -> None:
    policy = load_policy(str(make_policy_folder(tmp_path, "qwen2", seed=9)), "cpu")
    generator = generator_for(policy)
    arguments: Arguments = {"completions_per_prompt": 4, "max_new_tokens": 8, "temperature": 1.0, "seed": 2}
    before = generator.sample(PROMPTS, **arguments)
    with torch.no_grad():
        policy.model.model.layers[1].mlp.up_proj.weight.mul_(1.5)
    after = generator.sample(PROMPTS, **arguments)
    assert before != after
    expected = reference_logprobs(policy, PROMPTS[1], after[1][0].tokens, 1.0)
    assert (torch.tensor(after[1][0].logprobs) - expected).abs().max() < 1e-5


def test_many_prompts_are_decoded_in_parts(policies: dict[str, Policy]) -> None:
    policy = policies["qwen2"]
    prompts = [(40 + number % 50, 41, 42) for number in range(300)]
    arguments: Arguments = {"completions_per_prompt": 1, "max_new_tokens": 4, "temperature": 0.0, "seed": 0}
    whole = FastGenerator(policy).sample(prompts, **arguments)
    single = [FastGenerator(policy).sample([prompt], **arguments)[0][0].tokens for prompt in prompts[:60]]
    assert len(whole) == 300
    assert [group[0].tokens for group in whole[:60]] == single
    assert FastGenerator(policy).sample([], **arguments) == []


@pytest.mark.parametrize(("kind", "rank"), [("gpt2", 0), ("qwen2", 4)])
def test_the_settings_of_a_folder_do_not_change_its_samples(tmp_path: Path, kind: str, rank: int) -> None:
    """Log-probabilities are the plain policy's, so its samples must be, too; an export keeps the settings."""
    folder = make_policy_folder(tmp_path / "model", kind)

    def loaded() -> Policy:
        policy = load_policy(str(folder), "cpu")
        return policy.with_adapters(rank) if rank else policy

    def samples(policy: Policy) -> list[list[list[Completion]]]:
        arguments: Arguments = {
            "completions_per_prompt": 4,
            "max_new_tokens": 12,
            "temperature": 1.0,
            "seed": 5,
        }
        greedy: Arguments = {**arguments, "temperature": 0.0}
        return [PlainGenerator(policy).sample(PROMPTS, **each) for each in (arguments, greedy)]

    wanted = samples(loaded())
    settings = {
        "repetition_penalty": 3.0,
        "no_repeat_ngram_size": 1,
        "suppress_tokens": list(range(50, 60)),
        "min_new_tokens": 12,
        "num_beams": 2,
    }
    (folder / "generation_config.json").write_text(json.dumps(settings))
    policy = loaded()
    before = policy.model.generation_config.to_dict()
    assert samples(policy) == wanted
    assert policy.model.generation_config.to_dict() == before
    policy.save(tmp_path / "exported")
    exported = json.loads((tmp_path / "exported" / "generation_config.json").read_text())
    assert {name: exported.get(name) for name in settings} == settings


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_every_end_token_of_a_folder_ends_a_completion(tmp_path: Path, kind: str) -> None:
    """Chat models end a turn with another token than a text."""
    folder = make_policy_folder(tmp_path, kind)
    end, turn, outside = load_policy(str(folder), "cpu").end, 45, 10**6
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [turn, end, outside]}))
    policy = load_policy(str(folder), "cpu")
    assert policy.ends == (end, turn)
    with torch.no_grad():
        policy.model.lm_head.weight[end] *= 4
        policy.model.lm_head.weight[turn] = policy.model.lm_head.weight[end]  # as likely
    groups = generator_for(policy).sample(
        PROMPTS, completions_per_prompt=32, max_new_tokens=40, temperature=2.0, seed=1
    )
    rows = [completion for group in groups for completion in group]
    assert {row.tokens[-1] for row in rows if len(row.tokens) < 40} == {end, turn}
    for row in rows:
        assert not set(row.tokens[:-1]) & set(policy.ends)
        kept = row.tokens[:-1] if row.tokens[-1] in policy.ends else row.tokens
        assert row.text == policy.tokenizer.decode(list(kept), skip_special_tokens=True)


def test_one_end_token_in_a_folders_settings_is_one_more(tmp_path: Path) -> None:
    folder = make_policy_folder(tmp_path)
    end = load_policy(str(folder), "cpu").end
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 45}))
    assert load_policy(str(folder), "cpu").ends == (end, 45)
