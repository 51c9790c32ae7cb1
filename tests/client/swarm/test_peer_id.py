"""Peer ids without libp2p."""

from hypothesis import given
from hypothesis import strategies as st

from sapo_client.swarm.peer_id import key_from_peer_id, peer_id_from_key


@given(st.binary(min_size=32, max_size=32))
def test_a_peer_id_gives_its_key(key: bytes) -> None:
    assert key_from_peer_id(peer_id_from_key(key)) == key


@given(st.text(max_size=80))
def test_other_text_is_no_peer_id(text: str) -> None:
    key = key_from_peer_id(text)
    assert key is None or peer_id_from_key(key) == text


def test_peer_ids_equal_those_of_libp2p() -> None:
    from libp2p.crypto.ed25519 import create_new_key_pair
    from libp2p.peer.id import ID

    public_key = create_new_key_pair(bytes(range(32))).public_key
    assert peer_id_from_key(public_key.to_bytes()) == str(ID.from_pubkey(public_key))
