"""`sapo.Node`: real nodes with libp2p on loopback, real learners and real checkers, run by a program."""

import json
import threading
from importlib.resources import files
from pathlib import Path

import pytest
from support.nodes import manifest_of

import sapo
from sapo_client.paths import DataDir
from sapo_protocol.manifest_file import manifest_from_json, manifest_to_json
from sapo_protocol.suite import Suite

pytestmark = pytest.mark.e2e

SMALL: dict[str, object] = {
    "learner.local_groups": 2,
    "learner.external_groups": 2,
    "learner.completions": 6,
    "learner.max_new_tokens": 6,
    "verification.audit_share": 1.0,
    "verification.audit_time": 1.0,
}
LOOPBACK = ["/ip4/127.0.0.1/tcp/0"]


@pytest.fixture
def manifest(weekdays: Suite, tmp_path: Path) -> Path:
    """Return the manifest of a swarm without a chain, with the only family that the policy knows."""
    path = tmp_path / "manifest.json"
    path.write_text(manifest_to_json(manifest_of(weekdays)), encoding="utf-8")
    return path


def test_two_nodes_call_their_callbacks_with_own_and_external_rollouts(
    manifest: Path, policy: Path, tmp_path: Path
) -> None:
    first = sapo.Node(tmp_path / "first", manifest=manifest, model=policy, listen=LOOPBACK, settings=SMALL)
    own, external, threads = list[sapo.ScoredRollout](), list[sapo.ScoredRollout](), set[str]()
    first.on_reward(own.append)

    @first.on_external
    def note(rollout: sapo.ScoredRollout) -> None:
        external.append(rollout)
        threads.add(threading.current_thread().name)

    assert (first.is_started, first.is_running, first.addresses, first.step) == (False, False, (), 0)
    with first:
        assert all("/p2p/" in address for address in first.addresses)
        second = sapo.Node(
            tmp_path / "second",
            manifest=manifest,
            model=policy,
            listen=LOOPBACK,
            bootstrap=first.addresses,
            settings=SMALL,
        )
        rounds = list[sapo.RoundSummary]()

        def follow() -> None:
            for summary in second.rounds():
                rounds.append(summary)
                if external and len(rounds) > 1:
                    raise KeyError("the block's")

        with pytest.raises(KeyError, match="the block's"), second:
            follow()  # its error wins, and the node ends
        assert not second.is_running
        assert [summary.step for summary in rounds] == list(range(1, len(rounds) + 1))
        status = first.status()
        assert (status["node_id"], status["state"]) == (first.node_id, "running")
    assert not first.is_running
    assert threads == {"sapo-callbacks"}
    assert {rollout.account for rollout in external} == {second.account}
    assert {rollout.account for rollout in own} == {first.account}
    for rollout in (*own, *external):
        assert rollout.family == "calendar_arithmetic"
        assert len(rollout.completions) == len(rollout.rewards) == 6
        assert rollout.mean_reward == sum(rollout.rewards) / 6
    assert (first.missed, DataDir(first.data_dir).clean_shutdown.exists()) == (0, True)


def test_a_node_that_a_callback_stopped_resumes_in_its_directory(
    manifest: Path, policy: Path, tmp_path: Path
) -> None:
    def node_of(steps: int | None) -> sapo.Node:
        return sapo.Node(
            tmp_path / "node", manifest=manifest, model=policy, listen=LOOPBACK, steps=steps, settings=SMALL
        )

    with node_of(None) as stopped:
        stopped.on_round(lambda _summary: stopped.stop())
        steps = [summary.step for summary in stopped.rounds()]
        assert stopped.wait()
    assert steps == list(range(1, stopped.step + 1)) != []
    with node_of(2) as node:
        steps += [summary.step for summary in node.rounds()]
    assert node.wait()
    assert list(node.rounds()) == []
    assert steps == list(range(1, stopped.step + 3))


def test_an_error_in_a_callback_stops_the_node_and_is_raised(
    manifest: Path, policy: Path, tmp_path: Path
) -> None:
    node = sapo.Node(tmp_path / "node", manifest=manifest, model=policy, listen=LOOPBACK, settings=SMALL)

    @node.on_round
    def fail(_summary: sapo.RoundSummary) -> None:
        raise ValueError("a mistake in the callback")

    node.start()
    with pytest.raises(ValueError, match="a mistake in the callback"):
        node.wait()
    assert not node.is_running
    with pytest.raises(sapo.SapoError, match="was started before"):
        node.start()


def test_a_failed_start_states_what_to_do(tmp_path: Path, manifest: Path) -> None:
    with pytest.raises(sapo.SapoError, match=r"unknown setting learner\.temprature") as caught:
        sapo.Node(tmp_path / "node", settings={"learner.temprature": 1.0})
    assert caught.value.hint == "did you mean learner.temperature?"
    with pytest.raises(sapo.SapoError, match="no swarm to join"):
        sapo.Node(tmp_path / "node").start()
    with (
        pytest.raises(sapo.SapoError, match="is not an address to listen on"),
        sapo.Node(tmp_path / "node", manifest=manifest, listen=["127.0.0.1:4001"]),
    ):
        pass


def test_settings_ignore_the_users_file_and_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.toml").write_text("nonsense = 1\n", encoding="utf-8")
    monkeypatch.setenv("SAPO_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("SAPO_LEARNER__SEED", "no number")
    one, two = sapo.Node(tmp_path / "node"), sapo.Node(tmp_path / "node")
    assert (one.account, one.node_id) == (two.account, two.node_id)


def test_founding_a_swarm_twice_in_one_folder_is_refused(tmp_path: Path) -> None:
    path = sapo.found_swarm(tmp_path / "swarm", families=["gcd"], level="easy", epoch_seconds=60)
    manifest = manifest_from_json(path.read_text(encoding="utf-8"))
    assert (manifest.has_chain, manifest.epoch_seconds) == (False, 60)
    assert [(family.name, family.level) for family in manifest.suite.families] == [("gcd", "easy")]
    with pytest.raises(sapo.SapoError, match="was founded in"):
        sapo.found_swarm(tmp_path / "swarm", families=["gcd"], level="easy")


def test_the_package_is_typed_and_everything_public_exists() -> None:
    assert (files("sapo") / "py.typed").is_file()
    assert [name for name in sapo.__all__ if not hasattr(sapo, name)] == []
    assert json.loads(json.dumps(sapo.__all__)) == sorted(sapo.__all__)
