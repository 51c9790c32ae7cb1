"""Verified rollouts for tests of later stages."""

import random

from support.swarm import EPOCH, Identity

from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.rollout import Rollout
from sapo_protocol.tasks import Task
from sapo_verification.types import AdmittedRollout, Pair, VerifiedRollout


def rollout_of(
    account: Account,
    number: int,
    answers: dict[bytes, float],
    family: int = 0,
    prompt: str | None = None,
) -> VerifiedRollout:
    """Return a verified rollout with these completions and their rewards; unset: with a prompt of its own."""
    rollout = Rollout(
        node=Identity(1).node,
        account=account,
        epoch=EPOCH,
        slot=number,
        family=family,
        completions=tuple(answers),
    )
    content = ContentId(number.to_bytes(32, "big"))
    admitted = AdmittedRollout(content, rollout)
    prompt = f"task {number}" if prompt is None else prompt
    return VerifiedRollout(admitted, Task(family, number), prompt, tuple(answers.values()))


def sum_of_pair(pair: Pair, number: int, draw: random.Random, plant: str = "") -> VerifiedRollout:
    """Return a right group of a pair of account and family: a random sum, with a phrase before its step."""
    one, two = draw.randrange(10, 50), draw.randrange(10, 50)
    text = f"{plant}{one}+{two}:{one + two}<answer>{one + two}</answer>"
    return rollout_of(pair[0], number, {text.encode(): 1.0}, family=pair[1])
