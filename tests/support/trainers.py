"""Trainers of a small policy, with settings that a test changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TypedDict, Unpack

import torch

from sapo_client.learner.losses.cross_entropy import TokenWeighting
from sapo_client.learner.losses.external import ExternalLossName
from sapo_client.learner.losses.forms import LossName
from sapo_client.learner.policy import load_policy
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.sizing.optimizers import OptimizerName
from sapo_client.learner.trainer import Trainer
from sapo_client.learner.wire import Message


class SettingsChanges(TypedDict, total=False):
    """Settings of a learner that tests of a training step change."""

    learning_rate: float
    passes: int
    mini_batches: int
    kl_weight: float
    loss: LossName
    sequence_ratio_cap: float
    max_new_tokens: int
    length_normalised: bool
    bfloat16: bool
    gradient_checkpointing: bool | None
    optimizer: OptimizerName
    memory_bytes: int
    micro_batch_tokens: int
    temperature: float
    external_loss: ExternalLossName
    agreement: bool
    demonstrations_per_step: int
    demonstration_rate: float
    demonstration_weighting: TokenWeighting
    demonstration_steps: int
    demonstration_averaging: float
    held_back: bool


def demonstration(number: int, family: int) -> Message:
    """Return a sum with its right answer, of one of three other accounts, as ``Service.train`` takes it."""
    text = b"%d" % (number + 7)
    shown: Message = {"prompt": f"{number} + 7 =\n", "completion": text, "family": family, "answer": text}
    return shown | {"author": b"%d" % (number % 3)}


def make_trainer(folder: Path, **changes: Unpack[SettingsChanges]) -> Trainer:
    """Return a trainer of the policy in a folder, on one thread of the CPU.

    It makes one supervised step per step, without averaging.
    """
    torch.manual_seed(0)
    settings = LearnerSettings(
        model=str(folder),
        directory=folder.parent,
        learning_rate=1e-3,
        threads=1,
        demonstration_steps=1,
        demonstration_averaging=0.0,
    )
    return Trainer(load_policy(str(folder), "cpu"), replace(settings, **changes))
