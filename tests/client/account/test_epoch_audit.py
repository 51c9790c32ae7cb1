"""An epoch's root, recomputed from an archive and from a file; complete, incomplete and forged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from support.auditor_harness import AUDITORS, World
from support.epoch_harness import ALICE, BOB, CAP, EPOCH, STRANGER, EpochHarness
from support.ledger import BUDGET_POINTS, ServedChain

from sapo_client import keystore
from sapo_client.account import ledger_commands
from sapo_client.account.epoch_audit import EXPLAINED, audit, export, verify
from sapo_client.config import Config, LedgerConfig, SwarmConfig
from sapo_client.errors import SapoError
from sapo_client.node.runtime.statements import SignedFields
from sapo_protocol.contributions import settle
from sapo_protocol.envelope import parse_envelope
from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.manifest_file import manifest_to_json


@pytest.fixture
def harness(tmp_path: Path, world: World) -> EpochHarness:
    return EpochHarness(tmp_path, world)


def row(account: Account, posted: int, by_all: int, *counts: int) -> dict[str, object]:
    return {"account": str(account), "posted": posted, "all tallies": by_all, "counts": list(counts)}


def test_a_root_is_explained_by_the_tallies_behind_it(harness: EpochHarness, tmp_path: Path) -> None:
    tallies = dict(harness.tally(person, 5, 2 + index) for index, person in enumerate(AUDITORS))
    harness.post(list(tallies.items()))
    result = audit(harness.config, EPOCH)
    heard = [tallies[id_] for id_ in sorted(tallies)]
    assert {**result, "root": "", "accounts": sorted(result["accounts"], key=str)} == {
        "epoch": EPOCH,
        "state": "can be challenged",
        "root": "",
        "total": 8,
        "budget": BUDGET_POINTS,
        "quorum": 2,
        "verdict": EXPLAINED,
        "paid as by all tallies": True,
        "tallies": [
            {"auditor": str(t.account), "taken": True, "points": sum(dict(t.points).values())} for t in heard
        ],
        "accounts": sorted(
            (row(a, n, n, *(dict(t.points)[a] for t in heard)) for a, n in ((ALICE, 5), (BOB, 3))), key=str
        ),
    }
    harness.world.contracts.finalise()
    assert audit(harness.config, EPOCH) == {**result, "state": "final"}


def test_an_exported_file_gives_the_same_result(harness: EpochHarness, tmp_path: Path) -> None:
    harness.post([harness.tally(person, 5, 3) for person in AUDITORS])
    file = tmp_path / "epoch.json"
    assert export(harness.config, EPOCH, file) == {"file": str(file), "epoch": EPOCH, "messages": 4}
    stranger = Config(
        data_dir=tmp_path / "nowhere",
        swarm=SwarmConfig(manifest=harness.data.manifest),
        ledger=harness.config.ledger,
    )
    assert verify(stranger, file) == audit(harness.config, EPOCH)
    with pytest.raises(SapoError, match="cannot write"):
        export(harness.config, EPOCH, file)
    with pytest.raises(SapoError, match="holds no messages of epoch 9"):
        export(harness.config, 9, tmp_path / "other.json")
    with pytest.raises(SapoError, match="no node ever ran"):
        audit(stranger, EPOCH)


def test_a_file_with_missing_or_forged_messages_does_not_verify(
    harness: EpochHarness, tmp_path: Path
) -> None:
    taken = [harness.tally(person, 5, 3) for person in AUDITORS]
    content_id = harness.post(taken)
    file = tmp_path / "epoch.json"
    export(harness.config, EPOCH, file)
    document = json.loads(file.read_text())
    proposal = next(m for m in document["messages"] if content_id == _id(harness, m))
    tallies = [m for m in document["messages"] if m != proposal]

    def verdict(**changes: object) -> str:
        file.write_text(json.dumps({**document, **changes}))
        return str(verify(harness.config, file)["verdict"])

    assert verdict() == EXPLAINED
    assert verdict(messages=tallies).startswith("unknown")
    assert verdict(messages=[proposal, *tallies[1:]]).startswith("FALSE, or tallies are missing")
    assert verdict(certificates=document["certificates"][1:]) != EXPLAINED
    flipped = tallies[0][:-1] + ("0" if tallies[0][-1] != "0" else "1")
    assert verdict(messages=[proposal, flipped, *tallies[1:]]).startswith("FALSE, or")
    for changes in ({"format": "other"}, {"messages": ["zz"]}, {"more": 1}, {"epoch": "3"}):
        with pytest.raises(SapoError, match="not an epoch dossier"):
            verdict(**changes)
    with pytest.raises(SapoError, match="another swarm"):
        verdict(swarm_id="00" * 32)


def _id(harness: EpochHarness, message: str) -> ContentId:
    return parse_envelope(bytes.fromhex(message), harness.manifest.swarm_id).content_id


def test_tallies_that_a_proposer_left_out_are_detected(harness: EpochHarness) -> None:
    liar, *honest = AUDITORS
    denied, (counted, _) = harness.tally(liar, 0, 3), [harness.tally(person, 5, 3) for person in honest]
    harness.post([denied, counted])
    result = audit(harness.config, EPOCH)
    assert (result["verdict"], result["paid as by all tallies"]) == (EXPLAINED, False)
    assert sorted((t["taken"], t["points"]) for t in result["tallies"]) == [(False, 8), (True, 3), (True, 8)]
    paid = {each["account"]: (each["posted"], each["all tallies"]) for each in result["accounts"]}
    assert paid == {str(ALICE): (0, 5), str(BOB): (3, 3)}


def test_a_tally_of_an_account_that_is_no_auditor_is_not_counted(harness: EpochHarness) -> None:
    taken = [harness.tally(person, 5, 3) for person in AUDITORS]
    harness.tally(STRANGER, 16, 0)
    harness.post(taken)
    result = audit(harness.config, EPOCH)
    assert (result["verdict"], len(result["tallies"])) == (EXPLAINED, 3)


def test_shares_that_do_not_follow_are_reported_as_false(harness: EpochHarness) -> None:
    taken = [harness.tally(person, 5, 3) for person in AUDITORS]
    tallies = [tally for _, tally in taken]
    first, second = settle(tallies, {}, points_per_epoch=CAP, epoch_budget=BUDGET_POINTS)
    harness.post(taken, (replace(first, points=9, cumulative=9), second))
    assert audit(harness.config, EPOCH)["verdict"].startswith("FALSE, or tallies are missing")


def test_an_epoch_that_was_not_posted_and_another_chain_are_errors(harness: EpochHarness) -> None:
    with pytest.raises(SapoError, match="nothing was posted for epoch 3"):
        audit(harness.config, EPOCH)
    with pytest.raises(SapoError, match="no RPC endpoint"):
        audit(Config(data_dir=harness.data.root), EPOCH)
    other = ServedChain(harness.data.root / "other.sqlite", chain_id=99)
    with pytest.raises(SapoError, match="99"):
        audit(Config(data_dir=harness.data.root, ledger=LedgerConfig(rpc_urls=(other.url,))), EPOCH)
    other.close()


async def test_a_key_is_registered_without_a_node(world: World, tmp_path: Path) -> None:
    key, manifest = tmp_path / "key.json", tmp_path / "manifest.json"
    keystore.create(key, None, node_seed=STRANGER.seed, account_key=STRANGER.secret)
    manifest.write_text(manifest_to_json(world.manifest), encoding="utf-8")
    config = Config(
        identity=str(key),
        data_dir=tmp_path / "new",
        swarm=SwarmConfig(manifest=manifest),
        ledger=LedgerConfig(rpc_urls=(world.chain.url,)),
    )
    facts = {"account": str(STRANGER.account), "node": str(STRANGER.node), "registered": True}
    shown: list[SignedFields] = []
    for before in (False, True):
        result = await trio.to_thread.run_sync(ledger_commands.register, config, shown.extend)
        assert result == facts | {"before": before}
    assert world.contracts.registry.live_nodes(STRANGER.account) == (STRANGER.node,)
    (words,) = shown  # what is registered already is not signed again
    assert (words["transaction"], words["node key"]) == ("NodeRegistry.register", f"0x{STRANGER.node.hex()}")
