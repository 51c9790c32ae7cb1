"""The one-pass reader takes what the general decoder takes, reads the same, and decides nothing."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from support.strategies import damaged, fixed, rollouts
from support.verdicts import outcome_of

from sapo_protocol import envelope as envelopes
from sapo_protocol import rollout as rollout_module
from sapo_protocol.encoding import encode
from sapo_protocol.envelope import Kind, SignedEnvelope
from sapo_protocol.errors import Reason
from sapo_protocol.identifiers import Account, Digest, NodeId, SwarmId
from sapo_protocol.rollout import Rollout
from sapo_protocol.templates import read_frame, read_rollout

SWARM = SwarmId(b"\x05" * 32)
LARGEST = Rollout(NodeId(bytes(32)), Account(bytes(20)), 0, 0, 0, (b"a" * 8192,) * 7 + (b"a" * 8000,))
frames = st.builds(
    SignedEnvelope,
    st.sampled_from(Kind),
    st.just(SWARM),
    st.one_of(st.binary(max_size=30), st.sampled_from([23, 24, 255, 256, 65_535, 65_536]).map(bytes)),
    st.binary(min_size=64, max_size=64),
)


@given(rollouts)
@example(LARGEST)
def test_genuine_rollouts_follow_the_template(rollout: Rollout) -> None:
    taken = read_rollout(rollout.to_payload())
    assert taken is not None
    node, account, *rest, tag = taken
    assert Rollout(NodeId(node), Account(account), *rest, tag and Digest(tag)) == rollout


@given(rollouts.map(Rollout.to_payload).flatmap(damaged))
def test_what_follows_the_template_is_what_the_decoder_reads(payload: bytes) -> None:
    general = outcome_of(rollout_module._general_rollout, payload)
    if read_rollout(payload) is not None:
        assert isinstance(general, Rollout)
    assert outcome_of(rollout_module.parse_rollout, payload) == general


@given(st.lists(st.integers(0, 255), min_size=0, max_size=12).map(bytes), st.integers(56, 80))
def test_any_rest_of_a_rollout_gets_the_same_outcome(rest: bytes, cut: int) -> None:
    payload = LARGEST.to_payload()[:cut] + rest
    general = outcome_of(rollout_module._general_rollout, payload)
    assert outcome_of(rollout_module.parse_rollout, payload) == general


@given(frames)
def test_genuine_frames_follow_the_template(envelope: SignedEnvelope) -> None:
    assert read_frame(envelope.to_bytes(), SWARM) == (
        int(envelope.kind),
        envelope.payload,
        envelope.signature,
    )


@given(
    frames.map(SignedEnvelope.to_bytes).flatmap(damaged) | st.binary(max_size=120),
    fixed(SwarmId) | st.just(SWARM),
)
def test_a_frame_gets_the_same_outcome_either_way(data: bytes, swarm_id: SwarmId) -> None:
    general = outcome_of(envelopes._general_envelope, data, swarm_id)
    assert outcome_of(envelopes.parse_envelope, data, swarm_id) == general


@given(st.integers(0, 255), st.sampled_from(range(48)))
def test_every_byte_of_a_frames_heads_matters(value: int, place: int) -> None:
    data = bytearray(SignedEnvelope(Kind.ROLLOUT, SWARM, b"payload", bytes(64)).to_bytes())
    data[place] = value
    general: Any = outcome_of(envelopes._general_envelope, bytes(data), SWARM)
    assert outcome_of(envelopes.parse_envelope, bytes(data), SWARM) == general
    assert isinstance(general, SignedEnvelope | Reason)


def test_the_bounds_of_a_group_are_the_decoders() -> None:
    fields: dict[int, Any] = {0: bytes(32), 1: bytes(20), 2: 0, 3: 0, 4: 0}
    for group in ((b"a" * 8192,) * 8, (b"a" * 8193,), (b"a" * 4096,) * 16, (b"",) * 16, (b"",) * 17, ()):
        payload = encode({**fields, 5: group})
        general = outcome_of(rollout_module._general_rollout, payload)
        assert outcome_of(rollout_module.parse_rollout, payload) == general
