"""A chain of version 0.1.0 opens: replayed block for block, to the same hashes, states and receipts."""

import gzip
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.ledger import ALICE, BOB, DEPLOYER, address

from sapo_client.errors import SapoError
from sapo_client.ledger.chain import DEFAULT_CHAIN_ID
from sapo_client.ledger.chain.embedded import EmbeddedChain, Genesis
from sapo_client.ledger.chain.replay import OldBlock, OldChain
from sapo_client.ledger.chain.store import ChainStore

RECORDED = Path(__file__).parent / "data" / "chain-0.1.0.sqlite.gz"
HEAD = 47
ANY = Genesis(DEFAULT_CHAIN_ID, ())


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A chain as version 0.1.0 left it."""
    path = tmp_path / "chain.sqlite"
    path.write_bytes(gzip.decompress(RECORDED.read_bytes()))
    return path


def _rows(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def _index(path: Path) -> list[Any]:
    query = "SELECT hash, block, body, receipt FROM transactions ORDER BY block"
    return [(key, block, json.loads(body), json.loads(end)) for key, block, body, end in _rows(path, query)]


def _old_blocks(path: Path) -> Iterator[OldBlock]:
    with closing(ChainStore(path)) as store:
        yield from OldChain(store.connection).blocks()


def _old_genesis(path: Path) -> bytes:
    with closing(ChainStore(path)) as store:
        return OldChain(store.connection).genesis()


def test_a_replayed_chain_has_the_same_blocks(old: Path) -> None:
    headers = [block.header for block in _old_blocks(old)]
    index = _index(old)
    with closing(EmbeddedChain(old, ANY)) as chain:
        assert [chain.header(number) for number in range(HEAD + 1)] == headers
        assert chain.head == headers[-1]
        assert chain.state(chain.head).root() == headers[-1].state_root
        assert chain.state(headers[20]).root() == headers[20].state_root
    assert _index(old) == index
    assert _rows(old, "SELECT COUNT(*) FROM pairs") == [(0,)]


def test_the_present_machine_writes_the_receipts_that_py_evm_wrote(old: Path, tmp_path: Path) -> None:
    """Status, gas, logs, blooms, prices and addresses of created contracts, to the digit."""
    blocks = list(_old_blocks(old))
    clock = [blocks[0].header.timestamp]
    genesis = Genesis.from_bytes(_old_genesis(old))
    with closing(EmbeddedChain(tmp_path / "fresh", genesis, now=lambda: clock[0])) as chain:
        for block in blocks[1:]:
            assert block.raw is not None
            clock[0] = block.header.timestamp
            chain.send(block.raw)
        assert chain.head == blocks[-1].header
    assert _index(tmp_path / "fresh") == _index(old)


def test_a_replayed_chain_continues(old: Path) -> None:
    with closing(EmbeddedChain(old, ANY)) as chain:
        nonces = [chain.state(chain.head).account(address(who)).nonce for who in (DEPLOYER, ALICE, BOB)]
        assert nonces == [11, 7, 29]
    with closing(EmbeddedChain(old, ANY)) as again:  # nothing is replayed a second time
        assert again.head.block_number == HEAD
        assert sum(again.genesis.alloc.count(address(who)) for who in (DEPLOYER, ALICE, BOB)) == 3


class PowerCut(Exception):
    """The process dies here."""


def test_an_interrupted_replay_starts_again(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(_: OldChain) -> None:
        raise PowerCut

    with monkeypatch.context() as patch:
        patch.setattr(OldChain, "forget", cut)  # after the last block, before the commit
        with pytest.raises(PowerCut):
            EmbeddedChain(old, ANY)
    assert _rows(old, "SELECT COUNT(*) FROM blocks") == [(0,)]
    with closing(EmbeddedChain(old, ANY)) as chain:
        assert chain.head.block_number == HEAD


def _lose_a_block(connection: sqlite3.Connection) -> int:
    query = "DELETE FROM pairs WHERE key = CAST('block-number-to-hash:7' AS BLOB)"
    return connection.execute(query).rowcount


def _empty_a_header(connection: sqlite3.Connection) -> int:
    genesis = next(OldChain(connection).blocks()).header.hash
    return connection.execute("UPDATE pairs SET value = x'c0' WHERE key = ?", (genesis,)).rowcount


@pytest.mark.parametrize(("damage", "words"), [(_lose_a_block, "is missing"), (_empty_a_header, "21 fields")])
def test_a_damaged_old_chain_is_left_alone_with_one_clear_error(
    old: Path, damage: Callable[[sqlite3.Connection], int], words: str
) -> None:
    with closing(sqlite3.connect(old)) as connection, connection:
        assert damage(connection) == 1
    with pytest.raises(SapoError, match=r"version 0\.1\.0 that cannot be replayed") as caught:
        EmbeddedChain(old, ANY)
    assert words in caught.value.text
    assert "open it with version 0.1.0" in caught.value.hint
    assert _rows(old, "SELECT COUNT(*) FROM blocks") == [(0,)]
