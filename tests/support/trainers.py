"""Trainers of a small policy, with settings that a test changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TypedDict, Unpack

import torch

from sapo_client.learner.losses.cross_entropy import TokenWeighting
from sapo_client.learner.losses.external import ExternalLossName
from sapo_client.learner.policy import load_policy
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.trainer import Trainer


class SettingsChanges(TypedDict, total=False):
    """Settings of a learner that tests of a training step change."""

    learning_rate: float
    passes: int
    mini_batches: int
    kl_weight: float
    length_normalised: bool
    bfloat16: bool
    gradient_checkpointing: bool
    memory_bytes: int
    micro_batch_tokens: int
    temperature: float
    external_loss: ExternalLossName
    demonstrations_per_step: int
    demonstration_rate: float
    demonstration_weighting: TokenWeighting


def make_trainer(folder: Path, **changes: Unpack[SettingsChanges]) -> Trainer:
    """Return a trainer of the policy in a folder, on one thread of the CPU."""
    torch.manual_seed(0)
    settings = LearnerSettings(model=str(folder), directory=folder.parent, learning_rate=1e-3, threads=1)
    return Trainer(load_policy(str(folder), "cpu"), replace(settings, **changes))
