"""Texts of the node as tokens of the policy: groups of other accounts, and demonstrations."""

from __future__ import annotations

from collections.abc import Sequence

from sapo_client.learner.batch import TrainingGroup
from sapo_client.learner.imitation.demonstrations import DemonstrationText
from sapo_client.learner.policy import Policy
from sapo_verification.tasks.text_policy import OPEN_TAG


def encoded_group(
    policy: Policy,
    prompt: str,
    completions: Sequence[bytes],
    rewards: Sequence[float],
    *,
    external: bool,
    family: int | None,
    max_new_tokens: int,
) -> TrainingGroup:
    """Return a group as tokens, without log-probabilities of sampling.

    Its completions have no tokens if the policy's chat template refuses the prompt.
    """
    asked = policy.encode_if_taken(prompt)
    texts = [completion.decode("utf-8", errors="replace") for completion in completions]
    limit = 0 if asked is None else max_new_tokens
    return TrainingGroup(
        prompt=asked or (),
        completions=tuple(policy.encode_completion(text, limit) for text in texts),
        rewards=tuple(rewards),
        external=external,
        behaviour=None,
        family=family,
    )


def encoded_demonstration(
    policy: Policy,
    prompt: str,
    completion: bytes,
    *,
    family: int,
    author: bytes,
    answer: bytes,
    max_new_tokens: int,
) -> DemonstrationText | None:
    """Return a demonstration as tokens; None if it is not UTF-8, or cannot be asked or sampled here.

    Args:
        family: index of the suite.
        author: the account's id.
        answer: the completion without the way to it.
    """
    try:
        text = completion.decode("utf-8")
    except UnicodeDecodeError:
        return None
    tokens, asked = policy.encode_completion(text, max_new_tokens + 1), policy.encode_if_taken(prompt)
    if len(tokens) > max_new_tokens or asked is None or not policy.has_room(asked, max_new_tokens):
        return None
    steps, opened, _ = text.partition(OPEN_TAG)
    before = len(policy.encode_completion(steps + opened, max_new_tokens)) - 1 if steps and opened else 0
    return DemonstrationText(asked, tokens, family, author, answer, before)
