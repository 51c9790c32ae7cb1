"""Loss and its gradient with respect to every token, compared with TRL's on the same tensors."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TypedDict

import pytest
import torch
from support import trl_losses
from support.gradients import gradient_of

from sapo_client.learner import grpo
from sapo_client.learner.losses.forms import LOSS_FORMS, LossName


class Case(TypedDict):
    """One case of the file of vectors, as ``trl_losses.produce`` writes it."""

    mean: str
    kl_weight: float
    loss: float
    gradient: list[list[float]]


class FormCase(TypedDict):
    """One form of the loss, as ``trl_losses.produce`` writes it."""

    form: LossName
    loss: float
    gradient: list[list[float]]


VECTORS = json.loads((Path(__file__).parent / "trl_losses.json").read_text(encoding="utf-8"))


def test_the_vectors_belong_to_these_tensors() -> None:
    assert {name: tensor.tolist() for name, tensor in trl_losses.tensors().items()} == VECTORS["tensors"]


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: f"{case['mean']}-{case['kl_weight']}")
def test_loss_and_gradient_equal_those_of_trl(case: Case) -> None:
    given = trl_losses.tensors()
    logprobs = given["logprobs"].requires_grad_()
    losses = grpo.token_losses(logprobs, given["old_logprobs"], given["advantages"])
    divergence = grpo.kl_divergence(logprobs, given["reference_logprobs"])
    mask = given["mask"]
    sizes = {"mean_over_tokens": int(mask.sum()), "mean_over_completions": len(mask)}
    mean = getattr(grpo, case["mean"])
    loss = mean(losses + case["kl_weight"] * divergence, mask, sizes[case["mean"]])
    torch.autograd.backward(loss)
    assert float(loss.detach()) == pytest.approx(case["loss"], rel=1e-6)
    assert torch.allclose(
        gradient_of(logprobs), torch.tensor(case["gradient"], dtype=torch.float64), atol=1e-7
    )


@pytest.mark.parametrize("case", VECTORS["forms"], ids=lambda case: case["form"])
def test_each_form_of_the_loss_equals_that_of_trl(case: FormCase) -> None:
    form, given = LOSS_FORMS[case["form"]], trl_losses.tensors()
    logprobs, mask = given["logprobs"].requires_grad_(), given["mask"]
    losses = form.token_losses(logprobs, given["old_logprobs"], given["advantages"], mask)
    sizes = {"tokens": int(mask.sum()), "completions": len(mask), "places": len(mask) * trl_losses.LONGEST}
    mean = grpo.mean_over_completions if form.denominator == "completions" else grpo.mean_over_tokens
    loss = mean(losses, mask, sizes[form.denominator])
    torch.autograd.backward(loss)
    assert float(loss.detach()) == pytest.approx(case["loss"], rel=1e-6)
    assert torch.allclose(
        gradient_of(logprobs), torch.tensor(case["gradient"], dtype=torch.float64), atol=1e-7
    )


@pytest.mark.skipif(find_spec("trl") is None, reason="trl is not installed (pip install sapo-swarm[dev])")
def test_the_installed_trl_computes_these_vectors() -> None:
    fresh = trl_losses.produce()
    assert fresh["tensors"] == VECTORS["tensors"]
    pairs = [*zip(fresh["cases"], VECTORS["cases"], strict=True)]
    pairs += zip(fresh["forms"], VECTORS["forms"], strict=True)
    for now, then in pairs:
        names = ("mean", "kl_weight", "form")
        assert [now.get(name) for name in names] == [then.get(name) for name in names]
        assert now["loss"] == pytest.approx(then["loss"], rel=1e-9)
        assert torch.allclose(torch.tensor(now["gradient"]), torch.tensor(then["gradient"]), atol=1e-9)
