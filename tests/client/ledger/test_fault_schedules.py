"""Under random faults each record is once on the chain, and no nonce and no epoch is signed twice."""

from collections.abc import Iterator

import pytest
from fuzz.schedules import Ground, play

from sapo_client.ledger import fees, sender
from sapo_verification.signing.database import SigningDatabase

SCHEDULES = 6


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    opened = Ground(tmp_path_factory.mktemp("ground"))
    yield opened
    opened.close()


@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_under_a_fault_schedule_no_transaction_is_lost_or_doubled(ground: Ground, seed: int) -> None:
    assert play(ground, seed).findings == ()


def test_the_same_seed_gives_the_same_schedule(ground: Ground) -> None:
    assert play(ground, 3) == play(ground, 3)


@pytest.mark.parametrize(
    ("owner", "name", "broken", "seeds", "words"),
    [
        (sender, "is_lost", lambda *_: True, (1, 4, 6), "is refused|stands for"),
        (fees, "_BUMP", (21, 20), (1, 2), "replaced for too little"),
        (SigningDatabase, "approve", lambda *_: True, (0, 1, 2, 3), "2 signatures"),
    ],
)
def test_deliberately_broken_components_fail_the_schedules(
    ground: Ground,
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    name: str,
    broken: object,
    seeds: tuple[int, ...],
    words: str,
) -> None:
    monkeypatch.setattr(owner, name, broken)
    found = " ".join(finding for seed in seeds for finding in play(ground, seed).findings)
    assert any(word in found for word in words.split("|"))
