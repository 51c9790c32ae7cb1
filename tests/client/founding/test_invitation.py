"""Invitations: all forms, and all errors of each form."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
import zlib
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from support.ledger import BOB, found
from support.swarm import make_chain_manifest, make_manifest

from sapo_client.errors import SapoError
from sapo_client.founding.invitation import MAX_BYTES, Invitation, link, read_invitation, to_file
from sapo_client.founding.invitation_server import FaucetAccess, InvitationServer
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_protocol import ed25519
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest_file import manifest_to_json

PEER = f"/ip4/203.0.113.7/tcp/4001/p2p/{peer_id_from_key(ed25519.public_key(bytes(32)))}"
MANIFEST = make_chain_manifest(bootstrap=(PEER,))
FULL = Invitation(
    MANIFEST,
    rpc_urls=("https://rpc.example.org/v1?key=a&b=c", "http://127.0.0.1:8545"),
    faucet="https://faucet.example.org/",
    bootstrap=(PEER,),
)
OTHER = make_manifest(epoch_seconds=61)


def served(content: str | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.encode()


def refused(text: str, content: str | bytes = b"") -> SapoError:
    with pytest.raises(SapoError) as caught:
        read_invitation(text, lambda _: served(content))
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("invitation", [FULL, Invitation(make_manifest())])
def test_a_link_holds_everything(invitation: Invitation) -> None:
    text = link(invitation)
    found = read_invitation(text)
    assert found == replace(invitation, manifest=found.manifest, proved=True)
    assert manifest_to_json(found.manifest) == manifest_to_json(invitation.manifest)
    assert not set(text) & set(" '\"`$\\\n"), "a shell takes it between single quotes"


def test_a_link_of_a_later_release_asks_for_that_release() -> None:
    document = json.dumps({**json.loads(manifest_to_json(MANIFEST)), "version": 9})
    assert refused("https://example.org/swarm.json", document).hint.startswith("install the newest release")


def test_a_link_names_where_the_manifest_is_served() -> None:
    text = link(Invitation(MANIFEST), at="https://example.org/swarm.json")
    assert len(text) < 150
    for content in (manifest_to_json(MANIFEST), to_file(FULL)):
        assert read_invitation(text, lambda _, c=content: served(c)).manifest == MANIFEST  # type: ignore[misc]
    full = read_invitation(text, lambda _: served(to_file(FULL)))
    assert full == replace(FULL, manifest=full.manifest, proved=True)


def test_a_host_cannot_swap_the_swarm() -> None:
    for text in (
        link(Invitation(MANIFEST), at="https://example.org/swarm.json"),
        f"https://example.org/swarm.json#{MANIFEST.swarm_id}",
    ):
        error = refused(text, manifest_to_json(OTHER))
        assert (error.exit_code, OTHER.swarm_id.hex()[:12] in error.text) == (3, True)
    swapped = link(FULL).replace(str(MANIFEST.swarm_id), str(OTHER.swarm_id))
    assert "somebody changed" in refused(swapped).hint


def test_a_file_cannot_name_another_swarm_than_its_own() -> None:
    document = json.loads(to_file(FULL)) | {"swarm": str(OTHER.swarm_id)}
    assert "the link is for" in refused("https://example.org/x", json.dumps(document)).text


def test_an_invitation_without_a_digest_is_not_proved(tmp_path: Path) -> None:
    path = tmp_path / "swarm.json"
    path.write_text(to_file(FULL))
    for given in (
        read_invitation("https://example.org/x", lambda _: served(to_file(FULL))),
        read_invitation(str(path)),
        read_invitation(f"file://{path}"),
    ):
        assert given == replace(FULL, manifest=given.manifest, proved=False)
    path.write_text(manifest_to_json(MANIFEST))
    assert read_invitation(str(path)) == Invitation(MANIFEST)


def packed(content: bytes) -> str:
    return urlsafe_b64encode(zlib.compress(content, 9)).decode()


ID = MANIFEST.swarm_id


def test_an_address_that_cannot_be_reached_is_named_without_exceptions() -> None:
    with pytest.raises(SapoError) as caught:
        read_invitation("http://127.0.0.1:9/swarm.json")
    assert caught.value.text == "cannot download http://127.0.0.1:9/swarm.json: Connection refused"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ftp://example.org/x", "ftp:// is unknown"),
        ("sapo://", "names no swarm id"),
        ("sapo://1234?manifest=x", "names no swarm id"),
        (f"sapo://{ID}", "is incomplete: it neither holds"),
        (f"sapo://{ID}?rpc", "cannot be read"),
        (f"sapo://{ID}?rpc=http://a", "is incomplete: it neither holds"),
        (f"sapo://{ID}?at=https://a&manifest=x", "more than once"),
        (f"sapo://{ID}?at=https://a&at=https://b", "more than once"),
        (f"sapo://{ID}?manifest=%%%", "cut off|damaged"),
        (f"sapo://{ID}?manifest=AAAA", "cut off|damaged"),
        (f"sapo://{ID}?manifest=AAAAA", "(?m)in the link is cut off or damaged$"),
        (f"sapo://{ID}?manifest={packed(b'{}')}", "not a manifest"),
        (f"sapo://{ID}?manifest={packed(b'x' * (MAX_BYTES + 1))}", "cut off or too large"),
        (link(FULL)[:-20], "cut off|damaged"),
        (link(FULL) + "&passphrase=x", "a parameter passphrase, which is unknown"),
        (f"sapo://{ID}?manifest={'A' * 70_000}", "at most 65536"),
        (f"sapo://{ID}?at=file:///etc/passwd", "not http"),
        (f"sapo://{ID}?at=http://", "not http"),
        (link(replace(FULL, rpc_urls=("file:///etc/passwd",))), "rpc that is not http"),
        (link(replace(FULL, faucet="javascript:x")), "faucet that is not http"),
        (link(FULL) + "&faucet=https://b", "2 faucets"),
        (link(replace(FULL, bootstrap=("/ip4/1.2.3.4/tcp/1",))), "bootstrap address that is none"),
        ("http://example.org/swarm.json", "not encrypted"),
        ("https://", "not http"),
        ("nowhere.json", "cannot read the invitation nowhere.json"),
    ],
)
def test_an_invalid_invitation_is_reported_in_one_short_error(text: str, words: str) -> None:
    with pytest.raises(SapoError, match=words) as caught:
        read_invitation(text, lambda _: b"")
    assert (caught.value.exit_code, len(caught.value.text) < 400) == (3, True)


@pytest.mark.parametrize(
    "content",
    [
        b"\xff",
        b"[]",
        b"[" * 100_000,
        b'{"format": "sapo/invitation/9"}',
        b'{"format": "sapo/invitation/1"}',
        b"x" * (MAX_BYTES + 1),
        json.dumps(json.loads(to_file(FULL)) | {"rpc": [1]}).encode(),
    ],
)
def test_a_host_that_serves_anything_but_an_invitation_is_refused(content: bytes) -> None:
    assert refused("https://example.org/x", content).exit_code == 3


@contextmanager
def running(server: InvitationServer) -> Iterator[InvitationServer]:
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()


def post(url: str, body: bytes) -> tuple[int, dict[str, str]]:
    request = urllib.request.Request(url, body)
    try:
        with urllib.request.urlopen(request) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_swarm_is_served_with_its_faucet(tmp_path: Path) -> None:
    contracts = found(tmp_path / "chain.sqlite", genesis_seconds=1_800_000_000, epoch_seconds=60)
    manifest = contracts.manifest(suite=make_manifest().suite)
    url = contracts.chain.url
    access = FaucetAccess([url], BOB, contracts.deployment.faucet)
    server = InvitationServer(("127.0.0.1", 0), Invitation(manifest, (url,)), faucet=access)
    with server, running(server):
        found_there = read_invitation(server.link)
        assert found_there == Invitation(manifest, (url,), faucet=server.url, proved=True)
        newcomer = Account(bytes(19) + b"\x77")
        body = json.dumps({"account": str(newcomer)}).encode()
        assert post(server.url, body) == (200, {"served": str(newcomer)})
        balance = contracts.chain.rpc.ask(lambda web3: web3.eth.get_balance(str(newcomer)))
        assert balance > 0
        status, answer = post(server.url, body)
        assert (status, "served this account within the last day" in answer["error"]) == (403, True)
        for wrong in (b"{}", b"x", b"[]", b'{"account": "0x1"}', b" " * 2000):
            assert post(server.url, wrong)[0] == 400
        contracts.chain.vanish()
        other = json.dumps({"account": str(Account(bytes(19) + b"\x78"))}).encode()
        assert post(server.url, other)[0] == 502


def test_a_swarm_without_a_chain_has_no_faucet() -> None:
    server = InvitationServer(("127.0.0.1", 0), Invitation(make_manifest()), public="https://example.org/s")
    assert server.link == link(Invitation(make_manifest()), at="https://example.org/s")
    with server, pytest.raises(SapoError, match="cannot listen"):
        InvitationServer(server._server.server_address[:2], Invitation(make_manifest()))  # type: ignore[arg-type]
