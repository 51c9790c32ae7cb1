"""The founder's audit options: values that a manifest would refuse are refused before a deployment."""

from typing import Any

import pytest
from support.swarm import make_chain_manifest

from sapo_client.errors import ExitCode, SapoError
from sapo_client.founding.audits import audits_of
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.terms.audits import AuditTerms, max_finality_seconds

TERMS: dict[str, Any] = {"difficulty": "fixed", "epoch_seconds": 600, "finality_seconds": 60}


def test_audit_terms_draw_four_groups_of_one_account_in_n() -> None:
    asked = [audits_of(one_in, **TERMS) for one_in in (None, 1, 16)]
    assert asked == [None, AuditTerms(4, 1), AuditTerms(4, 16)]
    assert audits_of(None, difficulty="follow", epoch_seconds=60, finality_seconds=60) is None


def refusal(one_in: int, **changes: object) -> SapoError:
    with pytest.raises(SapoError) as refused:
        audits_of(one_in, **{**TERMS, **changes})
    assert refused.value.exit_code == ExitCode.USAGE
    return refused.value


@pytest.mark.parametrize("one_in", [0, 3, 131_072])
def test_a_share_that_is_no_power_of_two_is_refused_with_a_hint(one_in: int) -> None:
    assert "power of two" in str(refusal(one_in).hint)


def test_sampled_audits_with_difficulty_follow_are_refused() -> None:
    error = refusal(1, difficulty="follow")
    assert "difficulty follow" in str(error)
    assert "leave out --sample-audits" in str(error.hint)


@pytest.mark.parametrize("epoch_seconds", [1, 7, 60, 299, 300, 301, 600, 7200])
def test_a_block_that_settles_too_late_is_refused_here_and_by_the_manifest(epoch_seconds: int) -> None:
    most = max_finality_seconds(epoch_seconds)
    made = {"version": 2, "audits": AuditTerms(4, 1), "epoch_seconds": epoch_seconds}
    allowed = {"epoch_seconds": epoch_seconds, "finality_seconds": most}
    assert audits_of(1, **{**TERMS, **allowed}) == make_chain_manifest(**made, finality_seconds=most).audits
    error = refusal(1, epoch_seconds=epoch_seconds, finality_seconds=most + 1)
    assert f"--finality-seconds {most} or less" in str(error.hint)
    with pytest.raises(LocalProtocolError):
        make_chain_manifest(**made, finality_seconds=most + 1)
