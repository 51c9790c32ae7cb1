"""Each health finding, caused for real, and reported equally by every outlet."""

from __future__ import annotations

import resource
import signal
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import trio
from support.health_chain import begin_with_chain
from support.health_trial import Begin, HealthTrial, Told, require_failure, require_row
from support.ledger import ServedChain
from support.nodes import LOOK_SECONDS, PATIENCE_SECONDS, manifest_of, until
from support.policies import make_policy_folder
from support.swarm import Identity
from trio.testing import MockClock

from sapo_client.config import LAST_CHECKPOINT_SECONDS
from sapo_client.node.health import SUBSCRIPTION_SECONDS
from sapo_client.node.training.canary_state import CanaryFile, CanaryState
from sapo_client.observe.health import INTERVAL_SECONDS, REFUSED_MESSAGES
from sapo_client.observe.reports import kept_status
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.simulated.memory import MemoryTransport
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.rules import Rule
from sapo_protocol.suite import Suite
from sapo_protocol.topics import rollouts_topic
from sapo_verification.signing.database import SigningDatabase

EPOCH_SECONDS = 1800
STRANGER = Identity(9)
DEAD = f"/ip4/127.0.0.1/tcp/9/p2p/{peer_id_from_key(STRANGER.node)}"

# pytest-trio takes a clock only from a test's own parameters, so every test here names it.


async def bystander(trial: HealthTrial, nursery: trio.Nursery, name: str) -> MemoryTransport:
    """Return a peer without a node that is connected to the node."""
    peer = MemoryTransport(trial.hub, name, on_bug=_raise)
    await nursery.start(peer.run)
    await peer.connect(trial.home.address)
    return peer


def _raise(error: Exception) -> None:
    raise error


def damage(checkpoint: Path) -> None:
    """Change the last byte of a checkpoint's state."""
    state = checkpoint / "state.safetensors"
    content = bytearray(state.read_bytes())
    content[-1] ^= 1
    state.write_bytes(bytes(content))


async def expect(trial: HealthTrial, code: str, failure: str = "") -> Told:
    """Wait for a finding; assert that every outlet tells the same sentence, and what the page says of it.

    Args:
        failure: the row of the page's table of failures.
    """
    told = await trial.until_told(code)
    assert all(told.everywhere.values()), told
    require_row(told.row())
    if failure:
        require_failure(failure, told)
    return told


async def test_a_node_without_a_chain(mock_clock: MockClock, begin: Begin, weekdays: Suite) -> None:
    trial = begin(manifest_of(weekdays, epoch_seconds=36_000))
    async with trio.open_nursery() as nursery:
        await trial.start(nursery)
        async with trio.open_nursery() as others:
            peer = await bystander(trial, others, "noise")
            await trial.rounds(6)
            assert await trial.codes() == []
            await _send_noise(trial, peer, epoch=0)  # of an author whose certificate nobody has sent yet
            await trial.rounds(1)
            assert await trial.codes() == []
            await _send_noise(trial, peer, epoch=50)  # far in the future
            await expect(trial, "refusal_rate")
            trial.pass_by(SUBSCRIPTION_SECONDS)
            trial.hub.partition(["noise"])
            await trial.rounds(3)
            await expect(trial, "peers_refuse")
            trial.hub.heal()
            await trial.until_over("peers_refuse")
            others.cancel_scope.cancel()
        trial.pass_by(60)
        await expect(trial, "no_peers")

        await trial.stop_learner()
        await trial.run_for(200)
        await expect(trial, "learner_hung", "frozen learner")
        await expect(trial, "no_round")
        while not trial.home.events("learner_restarted"):  # a call that is rarely made has a late deadline
            await trial.run_for(INTERVAL_SECONDS)
            await trio.sleep(LOOK_SECONDS)
        await trial.until_over("learner_hung")
        await expect(trial, "learner_restarted")
        await trial.rounds(3)
        await trial.until_over("no_round")
        await trial.stop()


async def test_a_long_call_of_the_learner_feeds_the_watchdog(
    mock_clock: MockClock, begin: Begin, weekdays: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check of the canary may take longer than several rounds do, and systemd must not end it."""
    trial, address = begin(manifest_of(weekdays, epoch_seconds=36_000)), tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        monkeypatch.setenv("NOTIFY_SOCKET", str(address))
        async with trio.open_nursery() as nursery:
            await trial.start(nursery)
            await trial.rounds(1)
            await trial.stop_learner()
            await trial.run_for(250)  # no deadline is shorter than 300 s
            told = ""
            with trio.fail_after(PATIENCE_SECONDS):
                while "no_round" not in told:
                    told = (await trio.to_thread.run_sync(manager.recv, 4096)).decode()
            assert told.endswith("\nWATCHDOG=1"), told
            trial.home.signal_learner(signal.SIGCONT)
            await trial.until_over("no_round")
            await trial.stop()


async def test_a_halt_of_the_process_is_no_failure(
    mock_clock: MockClock, begin: Begin, weekdays: Suite
) -> None:
    """No round could end in that time, and no learner could answer: none is told, and none is killed."""
    trial = begin(manifest_of(weekdays, epoch_seconds=36_000))
    async with trio.open_nursery() as nursery:
        await trial.start(nursery)
        await trial.rounds(6)  # the usual durations are known
        await trial.stop_learner()
        trial.pass_by(4000)  # beyond every deadline
        await trial.run_for(INTERVAL_SECONDS)
        assert {*await trial.codes()} & {"no_round", "learner_hung", "learner_restarted"} == set()
        trial.home.signal_learner(signal.SIGCONT)
        await trial.rounds(3)
        assert trial.home.events("learner_restarted") == []
        await trial.stop()


async def test_rollouts_received_before_certificates_never_count(
    mock_clock: MockClock, begin: Begin, weekdays: Suite
) -> None:
    """Neither on arrival, nor when the node is no newcomer any more but the window still covers it."""
    trial = begin(manifest_of(weekdays, epoch_seconds=36_000))
    async with trio.open_nursery() as nursery:
        await trial.start(nursery)
        async with trio.open_nursery() as others:
            peer = await bystander(trial, others, "noise")
            await trial.rounds(1)
            await trial.run_for(200)
            await _send_noise(trial, peer, epoch=0)
            for seconds in (INTERVAL_SECONDS, 150):  # within the first five minutes, and after them
                await trial.run_for(seconds)
                await trial.rounds(2)
                assert "refusal_rate" not in await trial.codes()
            await _send_noise(trial, peer, epoch=0, first_slot=30)
            told = await trial.until_told("refusal_rate")
            assert "certificate_unknown" in told.text
            others.cancel_scope.cancel()
        await trial.stop()


@pytest.mark.parametrize("rule", [Rule.TERMS_KNOWN, Rule.ROLLOUT_NEW])
async def test_messages_that_are_usual_at_the_start_never_count(
    rule: Rule, mock_clock: MockClock, begin: Begin, weekdays: Suite
) -> None:
    """As when `make demo` starts: the first node's rollouts arrive while the others still read the chain.

    And as after a restart: peers announce what this node had. A node that had been killed warned of it.
    """
    trial = begin(manifest_of(weekdays, epoch_seconds=36_000))
    async with trio.open_nursery() as nursery:
        node = await trial.start(nursery)
        await trial.rounds(1)
        for _ in range(2 * REFUSED_MESSAGES):
            refused = RemoteProtocolError(rule, "as usual")
            node._context.telemetry.message_refused(refused, b"", "peer")
        for seconds in (INTERVAL_SECONDS, 250):
            await trial.run_for(seconds)
            await trial.rounds(1)
            assert "refusal_rate" not in await trial.codes()
        await trial.stop()


@pytest.mark.long
async def test_an_unreachable_bootstrap_address_is_a_finding(
    mock_clock: MockClock, begin: Begin, weekdays: Suite
) -> None:
    trial = begin(manifest_of(weekdays, epoch_seconds=36_000), swarm={"bootstrap": (DEAD,)})
    async with trio.open_nursery() as nursery:
        await trial.start(nursery)
        trial.pass_by(60)
        told = await expect(trial, "no_peers", "dead bootstrap")
        assert "the bootstrap address leads to none" in told.text
        await trial.stop()


async def test_dropped_rollouts_are_a_finding(mock_clock: MockClock, begin: Begin, weekdays: Suite) -> None:
    trial = begin(manifest_of(weekdays, epoch_seconds=36_000))
    async with trio.open_nursery() as nursery:
        await trial.start(nursery)
        with closing(sqlite3.connect(trial.home.data.database)) as connection, connection:
            connection.execute("INSERT OR REPLACE INTO held_epoch VALUES (0, 0, 40)")
        told = await expect(trial, "rollouts_dropped")
        assert told.text.startswith("N rollouts of this epoch and the one before were dropped")
        await trial.stop()


async def _send_noise(trial: HealthTrial, peer: MemoryTransport, *, epoch: int, first_slot: int = 0) -> None:
    """Send a stranger's messages of an epoch, until 20 are refused for one reason."""
    topic = rollouts_topic(trial.home.manifest.swarm_id)
    known = (await trial.home.get("status"))["refused"]
    for slot in range(first_slot, first_slot + 30):
        await peer.publish(topic, STRANGER.message(trial.home.manifest, epoch=epoch, slot=slot))
    await trial.until_status(lambda status: sum(status["refused"].values()) >= sum(known.values()) + 20)


async def test_a_policy_whose_text_cannot_be_shared_is_a_finding(
    mock_clock: MockClock, begin: Begin, weekdays: Suite
) -> None:
    """At this temperature it writes any bytes."""
    trial = begin(manifest_of(weekdays, epoch_seconds=36_000), learner={"temperature": 10.0})
    async with trio.open_nursery() as nursery:
        await trial.start(nursery)
        await expect(trial, "own_withheld")
        await trial.stop()


async def test_a_model_whose_window_fits_no_task_is_a_finding(
    mock_clock: MockClock, begin: Begin, weekdays: Suite, tmp_path: Path
) -> None:
    """Beside answers of 126 tokens, its window of 128 has room for no task."""
    model = make_policy_folder(tmp_path / "model", "gpt2")
    changes = {"model": str(model), "max_new_tokens": 126}
    trial = begin(manifest_of(weekdays, epoch_seconds=36_000), learner=changes)
    async with trio.open_nursery() as nursery:
        await trial.start(nursery)
        told = await expect(trial, "families_skipped")
        assert told.level == "error"
        await trial.stop()


@pytest.mark.long
async def test_damaged_checkpoints_and_a_full_disk_are_findings(
    mock_clock: MockClock, begin: Begin, weekdays: Suite
) -> None:
    trial = begin(manifest_of(weekdays, epoch_seconds=36_000), observe={"disk_reserve_mib": 10**9})
    checkpoints = trial.home.data.checkpoints
    async with trio.open_nursery() as nursery:
        await trial.start(nursery)
        await expect(trial, "disk_low", "full disk")
        await trial.rounds(6)
        await trial.stop()

        [older, newest] = sorted(checkpoints.glob("step-*"))
        damage(newest)
        await trial.start(nursery)
        told = await expect(trial, "checkpoint_unreadable")
        assert told.text.startswith("checkpoint step-N is damaged, so training went on at step N")
        [event] = trial.home.events("checkpoint_set_aside")
        assert (event["checkpoints"], event["resumed"]) == (newest.name, int(older.name.rpartition("-")[2]))
        await trial.stop()

        for checkpoint in checkpoints.glob("step-*"):
            damage(checkpoint)
        await trial.start(nursery)
        await expect(trial, "policy_reset")
        database = trial.home.data.database
        database.rename(database.with_suffix(".away"))
        database.mkdir()
        await expect(trial, "service_failed")
        database.rmdir()
        database.with_suffix(".away").rename(database)
        await trial.stop()


@pytest.mark.long
async def test_a_failed_checkpoint_and_a_lost_good_policy_are_findings(
    mock_clock: MockClock, begin: Begin, weekdays: Suite
) -> None:
    """Neither ends the node: it trains on, and the canary checks on."""
    trial = begin(manifest_of(weekdays, epoch_seconds=36_000), canary={"every_rounds": 0})
    data = trial.home.data
    async with trio.open_nursery() as nursery:
        await trial.start(nursery)
        await trial.rounds(1)
        trial.home.limit_learner(1000)
        await expect(trial, "checkpoint_failed")
        await trial.rounds(3)
        trial.home.limit_learner(resource.RLIM_INFINITY)
        await trial.stop()
        assert trial.home.events("learner_restarted") == []

        trial.home.changes = {"canary": {"every_rounds": 2, "items": 8}}
        canary = CanaryFile(data.learner / "canary.json", weekdays.families)
        canary.write(CanaryState(comparisons=1))
        await trial.start(nursery)
        told = await expect(trial, "good_policy_lost")
        assert told.level == "warning"
        await trial.rounds(3)
        [event] = trial.home.events("good_lost")
        assert [path.name for path in (data.learner / "good").iterdir()] != []
        await trial.stop()
        checks = trial.home.events("canary")
        assert event["step"] in [check["step"] for check in checks]
        report = kept_status(data)
        assert report is not None
        assert report.held_out is not None
        shown = report.held_out.step, report.held_out.items, report.held_out.reward
        assert shown == (checks[-1]["step"], 8, checks[-1]["reward"])


async def test_a_last_checkpoint_that_takes_too_long_is_reported(
    mock_clock: MockClock, begin: Begin, weekdays: Suite
) -> None:
    trial = begin(manifest_of(weekdays, epoch_seconds=36_000))
    async with trio.open_nursery() as nursery:
        node = await trial.start(nursery)
        await trial.rounds(1)
        await trial.stop_learner()
        node.request_stop(finish=False)
        while (call := node._learner.call) is None or call.name != "checkpoint":
            await trio.sleep(LOOK_SECONDS)
        trial.pass_by(LAST_CHECKPOINT_SECONDS - 60)
        await trio.sleep(1)  # of the mock clock, which runs
        assert trial.home.events("checkpoint_failed", "stopped") == []
        trial.pass_by(60)
        await until(lambda: bool(trial.home.events("stopped")))
    told = (
        f"the last checkpoint was not written: it was given up after {LAST_CHECKPOINT_SECONDS:.0f} s;"
        " the next start goes on from the one before it"
    )
    assert [event["why"] for event in trial.home.events("checkpoint_failed")] == [told]
    assert f"warning: {told}\n" in trial.terminal + trial.capsys.readouterr().err


async def test_a_node_with_a_chain(
    mock_clock: MockClock, begin: Begin, weekdays: Suite, tmp_path: Path
) -> None:
    on_chain = begin_with_chain(begin, weekdays, tmp_path, epoch_seconds=EPOCH_SECONDS)
    trial, account = on_chain.trial, on_chain.trial.home.identity.account
    other = ServedChain(tmp_path / "other.sqlite", chain_id=5)
    async with trio.open_nursery() as nursery:
        await trial.start(nursery)
        told = await expect(trial, "no_coins", "zero coins")
        assert "cannot register" in told.text
        await on_chain.send_coins(account)
        trial.pass_by(40)
        await trial.until_over("no_coins")

        trial.skew = 150
        await on_chain.blocks_until(lambda codes: "clock_off" in codes)
        await expect(trial, "clock_off", "skewed clock")
        trial.skew = 0
        await on_chain.blocks_until(lambda codes: "clock_off" not in codes)
        await trial.until_over("clock_off")

        on_chain.chain.swap(other)
        trial.pass_by(40)
        await expect(trial, "wrong_chain")
        on_chain.chain.swap(other)
        trial.pass_by(40)
        await trial.until_over("wrong_chain")

        await trio.to_thread.run_sync(on_chain.chain.close)
        trial.pass_by(40)
        await trial.until_told("chain_silent")
        await trial.run_for(EPOCH_SECONDS)  # its silence is an error then
        await expect(trial, "chain_silent", "frozen chain")
        await trial.stop()
    other.close()


async def test_own_training_continues_without_the_chain(
    mock_clock: MockClock, begin: Begin, weekdays: Suite, tmp_path: Path
) -> None:
    """From the next epoch on, and after a start without the chain; nothing is signed or published then."""
    on_chain = begin_with_chain(begin, weekdays, tmp_path)
    trial, home = on_chain.trial, on_chain.trial.home
    async with trio.open_nursery() as nursery:
        await on_chain.send_coins(home.identity.account)
        await trial.start(nursery)
        await trial.rounds(2)
        port = await trio.to_thread.run_sync(on_chain.chain.vanish)
        trial.pass_by(36_000)
        await trial.rounds(2)  # of its last epoch, perhaps
        await trial.until_status(lambda _: bool(home.events("training_privately")))
        signed = [mark.next_slot for mark in SigningDatabase(home.data.database).marks()]
        shared = len(home.events("published"))
        await trial.run_for(40)
        await trial.rounds(3)
        assert "this node trains alone" in (await trial.until_told("chain_silent")).hint
        await trial.until_status(
            lambda status: all(each["code"] != "no_round" for each in status["findings"])
        )
        assert [mark.next_slot for mark in SigningDatabase(home.data.database).marks()] == signed
        assert len(home.events("published")) == shared
        await trial.stop()

        await trial.start(nursery)
        await trial.rounds(2)
        assert len(home.events("published")) == shared
        on_chain.chain.serve_again(port)
        await on_chain.send_coins(home.identity.account)
        await trial.until_status(lambda _: len(home.events("published")) > shared)
        kinds = {(bool(step["private"]), bool(step["local"])) for step in home.events("step")}
        assert kinds == {(True, False), (False, True)}
        alone = [event["epoch"] for event in home.events("training_privately")]
        # once in each life, and more often where a busy machine keeps the chain silent for ten seconds
        assert len(alone) >= 2
        assert set(alone) == {0}
        assert len(home.events("training_shared")) >= 2
        await trial.stop()
    on_chain.chain.close()


async def test_a_registration_above_the_fee_limit_is_a_finding(
    mock_clock: MockClock, begin: Begin, weekdays: Suite, tmp_path: Path
) -> None:
    on_chain = begin_with_chain(begin, weekdays, tmp_path, max_fee_gwei=1e-9)
    trial = on_chain.trial
    async with trio.open_nursery() as nursery:
        await on_chain.send_coins(trial.home.identity.account)
        await trial.start(nursery)
        await trial.rounds(1)
        trial.pass_by(40)
        await trial.until_status(lambda status: status["ledger"]["last_error"] is not None)
        trial.pass_by(40)  # the node is assessed while it knows why
        await trial.rounds(1)
        await trial.run_for(200)
        await expect(trial, "not_registered")
        await trial.stop()
    on_chain.chain.close()


async def test_findings_of_the_chain_last_while_the_chain_is_unreachable(
    mock_clock: MockClock, begin: Begin, weekdays: Suite, tmp_path: Path
) -> None:
    """An account without coins stays one while the chain is away, and the time away counts for nothing."""
    on_chain = begin_with_chain(begin, weekdays, tmp_path)
    trial = on_chain.trial
    async with trio.open_nursery() as nursery:
        await trial.start(nursery)
        await trial.until_told("no_coins")
        port = await trio.to_thread.run_sync(on_chain.chain.vanish)
        trial.pass_by(300)
        told = await trial.until_told("chain_silent")
        assert all(told.everywhere.values()), told
        assert "no_coins" in await trial.codes()
        over = [line for line in trial.terminal.splitlines() if line.startswith("over: ")]
        assert not any("(no_coins)" in line for line in over), over  # a late round may be over

        on_chain.chain.serve_again(port)
        await on_chain.send_coins(trial.home.identity.account)
        trial.pass_by(40)
        await trial.until_over("no_coins")
        assert "not_registered" not in trial.terminal
        await trial.stop()
    on_chain.chain.close()
