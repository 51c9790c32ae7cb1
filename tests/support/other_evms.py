"""Recorded chains, run again by machines that are not ours: EthereumJS, and anvil with Rust's revm."""

from __future__ import annotations

import json
import shutil
import subprocess
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from support.anvil import HERE, running_anvil

from sapo_client.ledger.chain.embedded import GENESIS_WEI, Genesis
from sapo_client.ledger.chain.header import GAS_LIMIT
from sapo_client.ledger.chain.store import ChainStore

_PATIENCE_SECONDS: Final = 300


@dataclass(frozen=True)
class Ran:
    """What a block's only transaction came to.

    Attributes:
        logs: address, topics and data of each event.
        created: the address of the contract that it was to create; none otherwise.
    """

    gas_used: int
    succeeded: bool
    logs: tuple[tuple[str, tuple[str, ...], str], ...]
    created: str | None


@dataclass(frozen=True)
class Recorded:
    """A chain of ours: what another machine needs to run it again, and what it came to here.

    Attributes:
        blocks: number, timestamp, base fee, gas limit and signed transaction of each block from the first on.
        roots: the state root of the genesis and of each block.
        accounts: nonce and balance by address, after the last block.
        slots: value by address and slot number, after the last block.
    """

    chain_id: int
    genesis: dict[str, str]
    blocks: tuple[dict[str, str], ...]
    ran: tuple[Ran, ...]
    roots: tuple[str, ...]
    accounts: dict[str, tuple[int, int]]
    slots: dict[tuple[str, int], int]


def read(path: Path) -> Recorded:
    """Read the file of an embedded chain that is closed."""
    with closing(ChainStore(path)) as store:
        parameters, head = store.genesis(), store.head().block_number
        assert parameters is not None
        genesis = Genesis.from_bytes(parameters)
        headers = [store.header(number) for number in range(head + 1)]
        roots = tuple("0x" + header.state_root.hex() for header in headers if header is not None)
        blocks, ran = [], []
        for header in headers[1:]:
            assert header is not None
            raw = store.raw(header.block_number)
            assert raw is not None
            fields = header.block_number, header.timestamp, header.base_fee_per_gas, GAS_LIMIT
            named = dict(zip(("number", "timestamp", "baseFee", "gasLimit"), map(str, fields), strict=True))
            blocks.append({**named, "raw": "0x" + raw.hex()})
            [transaction] = store.transactions_in(header.block_number)
            receipt: Any = store.receipt(bytes.fromhex(transaction["hash"][2:]))
            ran.append(_of_receipt(receipt))
        accounts = store.accounts(head).items()
        return Recorded(
            genesis.chain_id,
            {"0x" + bytes(account).hex(): str(GENESIS_WEI) for account in genesis.alloc},
            tuple(blocks),
            tuple(ran),
            roots,
            {"0x" + where.hex(): (account.nonce, account.balance) for where, account in accounts},
            {("0x" + where.hex(), slot): value for (where, slot), value in store.slots(head).items()},
        )


def run_in_ethereumjs(recorded: Recorded) -> tuple[tuple[Ran, ...], tuple[str, ...]]:
    """Return what EthereumJS makes of the blocks: results and state roots; skip if it is not installed."""
    node = shutil.which("node")
    if node is None or not (HERE / "node_modules/@ethereumjs/vm").is_dir():
        pytest.skip("EthereumJS is not installed: `make test` installs it where Node.js and npm are")
    given = {"chainId": recorded.chain_id, "genesis": recorded.genesis, "blocks": recorded.blocks}
    done = subprocess.run(  # our own program
        [node, str(HERE / "replay.mjs")],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=_PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    ran = tuple(
        Ran(each["gasUsed"], each["status"] == 1, _logs(each["logs"]), each["created"])
        for each in found["blocks"]
    )
    return ran, (found["stateRoot"], *(each["stateRoot"] for each in found["blocks"]))


def run_in_anvil(
    recorded: Recorded, folder: Path
) -> tuple[tuple[Ran, ...], dict[str, tuple[int, int]], dict[tuple[str, int], int]]:
    """Return what anvil makes of the blocks: results, and the accounts and slots that ours has at the end.

    Its state roots are left out: it does not begin with the same empty state. Skips if it is not installed.
    """
    genesis = {
        "config": {"chainId": recorded.chain_id},
        "alloc": {where: {"balance": hex(int(wei))} for where, wei in recorded.genesis.items()},
        "difficulty": "0x0",
        "gasLimit": hex(GAS_LIMIT),
        "timestamp": hex(int(recorded.blocks[0]["timestamp"])),
    }
    (folder / "genesis.json").write_text(json.dumps(genesis), encoding="utf-8")
    options = ["--init", str(folder / "genesis.json"), "--hardfork", "prague", "--accounts", "0"]
    options += ["--chain-id", str(recorded.chain_id), "--gas-limit", str(GAS_LIMIT)]
    options += ["--timestamp", recorded.blocks[0]["timestamp"], "--disable-min-priority-fee"]
    with running_anvil(folder, arguments=tuple(options), blocks=0) as anvil:
        ran = []
        for block in recorded.blocks:
            anvil.ask("evm_setNextBlockTimestamp", int(block["timestamp"]))
            anvil.ask("anvil_setNextBlockBaseFeePerGas", hex(int(block["baseFee"])))
            digest = anvil.ask("eth_sendRawTransaction", block["raw"])
            ran.append(_of_receipt(anvil.receipt(digest)))
        accounts = {
            where: (anvil.nonce(where), int(anvil.ask("eth_getBalance", where, "latest"), 16))
            for where in recorded.accounts
        }
        slots = {
            (where, slot): int(anvil.ask("eth_getStorageAt", where, hex(slot), "latest"), 16)
            for where, slot in recorded.slots
        }
    return tuple(ran), accounts, slots


def _of_receipt(receipt: Any) -> Ran:
    created = receipt["contractAddress"]
    return Ran(
        int(receipt["gasUsed"], 16),
        receipt["status"] == "0x1",
        _logs(receipt["logs"]),
        None if created is None else created.lower(),
    )


def _logs(found: list[Any]) -> tuple[tuple[str, tuple[str, ...], str], ...]:
    return tuple((log["address"].lower(), tuple(log["topics"]), log["data"]) for log in found)
