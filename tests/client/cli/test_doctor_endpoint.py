"""What `sapo doctor` does with an endpoint whose address holds a key, or that a stranger named."""

from __future__ import annotations

from contextlib import closing
from socket import create_server

import pytest
from support import bad_rpc
from support.redirecting import redirecting
from support.swarm import make_chain_manifest

from sapo_client.cli.checks import Check
from sapo_client.cli.checks_network import check_chain
from sapo_client.config import Config, LedgerConfig

MANIFEST = make_chain_manifest(genesis_seconds=1_700_000_000)
assert MANIFEST.registry is not None
assert MANIFEST.ledger is not None
CONTRACTS = bad_rpc.codes({MANIFEST.registry: "NodeRegistry", MANIFEST.ledger: "EpochLedger"})


def checks_of(url: str) -> list[Check]:
    return list(check_chain(Config(ledger=LedgerConfig(rpc_urls=(url,))), MANIFEST))


def with_key(url: str) -> str:
    return f"{url.rstrip('/').replace('://', '://ada:s3cret@')}/v3/s3cret?key=s3cret"


@pytest.mark.parametrize("answer", [bad_rpc.chain(31337, CONTRACTS), bad_rpc.chain(1), bad_rpc.body(b"no")])
def test_no_line_holds_the_key_of_an_endpoint_that_answers(answer: bad_rpc.Answer) -> None:
    with bad_rpc.answering(answer) as url:
        found = checks_of(with_key(url))
        assert [check for check in found if check.name == "ledger" and url.rstrip("/") in check.detail]
    assert "s3cret" not in str(found)


def test_no_line_holds_the_key_of_an_endpoint_that_is_away() -> None:
    with closing(create_server(("127.0.0.1", 0))) as socket:
        port = socket.getsockname()[1]
    [found] = checks_of(with_key(f"http://127.0.0.1:{port}"))
    assert found.state == "fail"
    assert "s3cret" not in str(found)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with redirecting(status) as (endpoint, asked):
        [found] = checks_of(endpoint)
    assert (found.name, found.state, asked) == ("ledger", "fail", [])
    assert "it redirects to another address" in found.detail
