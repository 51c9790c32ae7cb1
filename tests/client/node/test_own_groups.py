"""Results of a node's last own groups, from its events."""

from sapo_client.node.own_groups import OwnGroups
from sapo_client.observe.own_groups import GROUPS, MIN_SKIPPED, OwnGroupFacts

LOCAL = 8


def ended(
    own: OwnGroups, *, shared: int, refused: tuple[str, ...], with_advantage: int, reward: float
) -> None:
    """Let a round end."""
    for reason in refused:
        own.note("own_rollout_refused", {"reason": reason, "detail": "why"})
    own.note("published", {"peers": 3})
    local = [f"id {number}" for number in range(shared)]
    step = {"local": local, "with_advantage": with_advantage, "reward": reward, "families": {}, "loss": 0.5}
    own.note("step", step)


def test_the_last_rounds_with_enough_groups_are_remembered() -> None:
    own = OwnGroups()
    assert own.facts() == OwnGroupFacts()
    ended(own, shared=LOCAL, refused=(), with_advantage=5, reward=1.0)
    assert own.facts() == OwnGroupFacts(shared=LOCAL, with_advantage=5, reward=1.0)
    refused = ("text_policy", "text_policy", "epoch_past")
    ended(own, shared=5, refused=refused, with_advantage=1, reward=0.2)
    withheld = {"text_policy": 2, "epoch_past": 1}
    assert own.facts() == OwnGroupFacts(shared=13, withheld=withheld, with_advantage=6, reward=9 / 13)
    for _ in range(GROUPS // LOCAL - 1):
        ended(own, shared=LOCAL, refused=(), with_advantage=0, reward=0.0)
    assert own.facts() == OwnGroupFacts(GROUPS - 3, withheld, with_advantage=1, reward=1 / (GROUPS - 3))
    ended(own, shared=0, refused=(), with_advantage=0, reward=0.5)  # without the chain
    assert own.facts().withheld == withheld
    ended(own, shared=LOCAL, refused=(), with_advantage=0, reward=0.0)
    assert own.facts() == OwnGroupFacts(shared=GROUPS)


def test_a_node_that_can_share_nothing_has_shared_nothing() -> None:
    own = OwnGroups()
    for _ in range(2 * GROUPS):
        ended(own, shared=0, refused=("text_policy",), with_advantage=0, reward=0.0)
    assert own.facts() == OwnGroupFacts(withheld={"text_policy": GROUPS})


def skip(own: OwnGroups, family: str, reason: str, *, tasks: int) -> None:
    for slot in range(tasks):
        own.note("slot_skipped", {"slot": slot, "family": family, "reason": reason, "detail": "why"})


def answer(own: OwnGroups, *families: str) -> None:
    rewards = dict.fromkeys(families, 0.5)
    own.note("step", {"local": ["id"], "with_advantage": 1, "reward": 0.5, "families": rewards})


def test_families_without_an_answered_task_are_listed_by_reason() -> None:
    own = OwnGroups()
    skip(own, "logic", "window", tasks=MIN_SKIPPED - 1)
    answer(own, "sums")
    assert own.facts().skipped == {}
    skip(own, "logic", "window", tasks=1)
    skip(own, "digits", "window", tasks=MIN_SKIPPED)
    skip(own, "sums", "window", tasks=MIN_SKIPPED)
    skip(own, "fractions", "timeout", tasks=MIN_SKIPPED)  # of the task, not of the model
    skip(own, "weekdays", "template", tasks=MIN_SKIPPED)
    assert own.facts().skipped == {"window": ["digits", "logic"], "template": ["weekdays"]}
    answer(own, "logic")
    assert own.facts().skipped == {"window": ["digits"], "template": ["weekdays"]}
    for _ in range(600):  # families that are not drawn any more are forgotten
        answer(own, "sums")
    assert own.facts().skipped == {}
