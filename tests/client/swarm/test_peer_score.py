"""Peer scores: only faults lower them, only time raises them, and no peer id can reset its score."""

from hypothesis import given
from hypothesis import strategies as st

from sapo_client.swarm.limits import ScoreLimits
from sapo_client.swarm.peer_score import PeerScores, PeerStanding, Severity

FAULTS = st.lists(st.tuples(st.sampled_from(Severity), st.floats(0, 300, allow_nan=False)), max_size=60)
LIMITS = ScoreLimits()


def _after(faults: list[tuple[Severity, float]]) -> tuple[PeerScores, float]:
    scores, now = PeerScores(), 1000.0
    for severity, pause_seconds in faults:
        scores.penalise("peer", severity, now)
        now += pause_seconds
    return scores, now


@given(FAULTS)
def test_score_stays_between_floor_and_zero(faults: list[tuple[Severity, float]]) -> None:
    scores, now = _after(faults)
    assert LIMITS.floor <= scores.score("peer", now) <= 0


@given(FAULTS, st.floats(0, 5000, allow_nan=False), st.floats(0, 5000, allow_nan=False))
def test_scores_rise_with_time(faults: list[tuple[Severity, float]], early: float, late: float) -> None:
    scores, now = _after(faults)
    first, second = sorted((early, late))
    assert scores.score("peer", now + first) <= scores.score("peer", now + second)


@given(FAULTS, st.sampled_from(Severity))
def test_a_fault_never_raises_the_score(faults: list[tuple[Severity, float]], severity: Severity) -> None:
    scores, now = _after(faults)
    before = scores.score("peer", now)
    scores.penalise("peer", severity, now)
    assert scores.score("peer", now) == max(LIMITS.floor, before + severity.value)


@given(FAULTS)
def test_faults_do_not_change_scores_of_other_peers(faults: list[tuple[Severity, float]]) -> None:
    scores, now = _after(faults)
    assert (scores.score("other", now), scores.standing("other", now)) == (0.0, PeerStanding.GOOD)


def test_a_score_halves_in_its_half_life() -> None:
    scores = PeerScores()
    scores.penalise("peer", Severity.LOW, 0.0)
    assert scores.score("peer", LIMITS.half_life_seconds) == Severity.LOW.value / 2


def test_a_ban_takes_the_stated_number_of_faults() -> None:
    strikes_to_ban = {}
    for severity in Severity:
        scores, strikes = PeerScores(), 1
        while scores.penalise("peer", severity, 0.0) is not PeerStanding.BANNED:
            strikes += 1
        strikes_to_ban[severity] = strikes
    assert strikes_to_ban == {Severity.FATAL: 1, Severity.LOW: 5, Severity.MID: 10, Severity.HIGH: 50}


def test_a_ban_is_temporary_and_its_score_decays() -> None:
    scores = PeerScores()
    scores.penalise("peer", Severity.FATAL, 0.0)
    standings = [scores.standing("peer", at_seconds) for at_seconds in (0.0, 599.0, 600.0, 1500.0)]
    assert standings == [
        PeerStanding.BANNED,
        PeerStanding.BANNED,
        PeerStanding.DISCONNECTED,
        PeerStanding.GOOD,
    ]


@given(st.integers(1, 400))
def test_new_peers_cannot_evict_a_ban(newcomers: int) -> None:
    scores = PeerScores(ScoreLimits(max_peers=32))
    scores.penalise("banned", Severity.FATAL, 0.0)
    for number in range(newcomers):
        scores.penalise(f"newcomer {number}", Severity.HIGH, 1.0)
    assert len(scores) <= 32
    assert scores.standing("banned", 2.0) is PeerStanding.BANNED


def test_of_too_many_peers_the_best_quarter_is_forgotten() -> None:
    """Otherwise an attacker could clear its own score with faults under new peer ids."""
    scores = PeerScores(ScoreLimits(max_peers=8))
    scores.penalise("worst", Severity.LOW, 0.0)
    scores.penalise("bad", Severity.MID, 0.0)
    for number in range(7):
        scores.penalise(f"newcomer {number}", Severity.HIGH, 0.0)
    assert len(scores) == 7
    assert [scores.score(name, 0.0) for name in ("worst", "bad")] == [Severity.LOW.value, Severity.MID.value]
