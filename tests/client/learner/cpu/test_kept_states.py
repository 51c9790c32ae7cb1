"""Results of sampling kept for the first update: same values and gradients; unused after weights change."""

import gc
import weakref
from pathlib import Path

import pytest
import torch
from support.gradients import gradient_of
from support.policies import make_policy_folder
from torch import Tensor

from sapo_client.learner.batch import TrainingGroup
from sapo_client.learner.cpu import kept_states
from sapo_client.learner.cpu.fast_forward import _known
from sapo_client.learner.generate import Completion, FastGenerator
from sapo_client.learner.held_groups import HeldGroup
from sapo_client.learner.logprobs import completion_logprobs
from sapo_client.learner.policy import Policy, load_policy
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings

PROMPTS = [(40, 41, 42), (50, 51, 52, 53, 54, 55, 56), (60,)]


def sampled(policy: Policy, new_tokens: int = 24) -> list[list[Completion]]:
    return FastGenerator(policy).sample(
        PROMPTS, completions_per_prompt=6, max_new_tokens=new_tokens, temperature=0.8, seed=3
    )


def gradients(policy: Policy, values: Tensor) -> list[Tensor]:
    policy.model.zero_grad()
    weights = torch.linspace(-1, 2, values.numel()).view_as(values)
    torch.autograd.backward((values * weights).sum())
    return [gradient_of(parameter).clone() for parameter in policy.model.parameters()]


def rewarded(group: HeldGroup, *, reuse: bool) -> TrainingGroup:
    """Return a sampled group of four with rewards, with what its sampling kept or without."""
    return TrainingGroup(
        group.prompt,
        tuple(item.tokens for item in group.completions),
        (1.0, 0.0, 0.0, 1.0),
        external=False,
        behaviour=tuple(item.logprobs for item in group.completions),
        states=tuple(item.states for item in group.completions) if reuse else None,
    )


@pytest.mark.parametrize("kind", ["qwen2", "llama", "llama3-rope"])
@pytest.mark.parametrize("wide", [True, False])
def test_values_and_gradients_are_those_of_a_whole_forward_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, wide: bool
) -> None:
    if wide:  # all results are kept, as of models that are wider than these
        monkeypatch.setattr(kept_states, "MIN_WIDTH", 1)
    policy = load_policy(str(make_policy_folder(tmp_path / "model", kind)), "cpu")
    groups = sampled(policy)
    # some rows alone, in another order, as micro-batches have them
    items = [(prompt, item) for prompt, group in zip(PROMPTS, groups, strict=True) for item in group][::-2]
    rows, states = [(prompt, item.tokens) for prompt, item in items], [item.states for _, item in items]
    assert _known(rows, states, 1000) is not None
    plain = completion_logprobs(policy.model, rows, policy.pad, 0.8)
    reused = completion_logprobs(policy.model, rows, policy.pad, 0.8, states=states)
    assert torch.allclose(reused, plain, atol=1e-5)
    for one, other in zip(gradients(policy, reused), gradients(policy, plain), strict=True):
        assert torch.allclose(one, other, atol=2e-4 * float(other.abs().max()) + 1e-6)


@pytest.mark.parametrize("wide", [True, False])
def test_the_first_pass_on_bfloat16_samples_reuses_their_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wide: bool
) -> None:
    """Log-probabilities are those of the sampler but for float32's rounding of what is computed again."""
    if wide:
        monkeypatch.setattr(kept_states, "MIN_WIDTH", 1)
    policy = load_policy(str(make_policy_folder(tmp_path / "model")), "cpu")
    groups = FastGenerator(policy, products=torch.bfloat16).sample(
        PROMPTS, completions_per_prompt=6, max_new_tokens=24, temperature=0.8, seed=3
    )
    items = [(prompt, item) for prompt, group in zip(PROMPTS, groups, strict=True) for item in group]
    rows, states = [(prompt, item.tokens) for prompt, item in items], [item.states for _, item in items]
    exact = completion_logprobs(policy.model, rows, policy.pad, 0.8)
    with torch.autocast("cpu", torch.bfloat16):
        plain = completion_logprobs(policy.model, rows, policy.pad, 0.8)
        reused = completion_logprobs(policy.model, rows, policy.pad, 0.8, states=states)
    behaviour = torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(item.logprobs) for _, item in items], batch_first=True
    )
    assert torch.allclose(reused, behaviour, atol=1e-4)
    assert 1e-4 < float((plain - exact).detach().abs().max()) < 0.1
    assert torch.allclose(plain, behaviour, atol=0.02)
    for one, other in zip(gradients(policy, reused), gradients(policy, plain), strict=True):
        assert torch.allclose(one, other, atol=0.02 * float(other.abs().max()) + 1e-6)


def test_states_are_not_reused_after_a_weight_changed_or_with_a_missing_row(tmp_path: Path) -> None:
    policy = load_policy(str(make_policy_folder(tmp_path / "model")), "cpu")
    [group, *_] = sampled(policy)
    rows, states = [(PROMPTS[0], item.tokens) for item in group], [item.states for item in group]
    assert _known(rows, [None, *states[1:]], 1000) is None
    assert _known(rows, [*states[:-1], sampled(policy)[0][-1].states], 1000) is None, "another sampling"
    assert _known(rows, states, 1000) is not None
    with torch.no_grad():
        policy.model.model.layers[1].mlp.up_proj.weight.mul_(1.5)
    assert _known(rows, states, 1000) is None
    plain = completion_logprobs(policy.model, rows, policy.pad, 0.8)
    assert torch.equal(completion_logprobs(policy.model, rows, policy.pad, 0.8, states=states), plain)


def test_tables_are_freed_with_the_samples_and_the_gradient(tmp_path: Path) -> None:
    """At once, without the garbage collector: nothing of the graph refers to itself."""
    policy = load_policy(str(make_policy_folder(tmp_path / "model")), "cpu")
    [group, *_] = sampled(policy)
    rows, states = [(PROMPTS[0], item.tokens) for item in group], [item.states for item in group]
    assert states[0] is not None
    tables = [weakref.ref(layer.gate_up) for layer in states[0].states._layers]
    gc.disable()
    try:
        torch.autograd.backward(completion_logprobs(policy.model, rows, policy.pad, 0.8, states=states).sum())
        del group, _, rows, states
        assert [table() for table in tables] == [None] * len(tables)
    finally:
        gc.enable()


def test_tables_that_are_too_large_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = load_policy(str(make_policy_folder(tmp_path / "model")), "cpu")
    monkeypatch.setattr(kept_states, "MAX_BYTES", 1000)
    assert {item.states for group in sampled(policy) for item in group} == {None}


def test_a_step_of_the_service_reuses_its_samples_and_then_drops_them(tmp_path: Path) -> None:
    folder = make_policy_folder(tmp_path / "model")
    after = []
    for reuse in (True, False):
        service = Service(
            LearnerSettings(str(folder), tmp_path / f"{reuse}", learning_rate=1e-3, max_new_tokens=8)
        )
        arguments = {"prompts": ["12", "3 + 4"], "completions_per_prompt": 4, "handles": [1, 2]}
        service.call("generate", arguments)
        group = service._held[1]
        assert all(item.states is not None and item.states.states.is_fresh for item in group.completions)
        report = service._trainer.step([rewarded(group, reuse=reuse)])
        assert (report.mismatch < 1e-9, report.clipped_share) == (True, 0.0)
        after.append([parameter.detach().clone() for parameter in service._trainer.parameters])
        service.call("train", {"groups": []})
        assert {item.states for item in service._held[2].completions} == {None}
    for one, other in zip(*after, strict=True):
        assert torch.allclose(one, other, atol=2e-4)


def test_a_learner_in_bfloat16_samples_and_trains_in_it(tmp_path: Path) -> None:
    folder = make_policy_folder(tmp_path / "model")
    service = Service(LearnerSettings(str(folder), tmp_path, max_new_tokens=8, bfloat16=True))
    arguments = {"prompts": ["12", "3 + 4"], "completions_per_prompt": 4, "handles": [1, 2]}
    service.call("generate", arguments)
    group = service._held[1]
    rows = [(group.prompt, item.tokens) for item in group.completions]
    exact = completion_logprobs(service._policy.model, rows, service._policy.pad, 1.0)
    behaviour = torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(item.logprobs) for item in group.completions], batch_first=True
    )
    assert 1e-4 < float((exact - behaviour).detach().abs().max()) < 0.1
    report = service._trainer.step([rewarded(group, reuse=True)])
    assert (report.mismatch < 1e-9, report.gradient_norm > 0) == (True, True)
