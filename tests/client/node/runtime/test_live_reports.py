"""Reports of a running node through its control API while it trains with another."""

from __future__ import annotations

from typing import Any

from support.nodes import COMPLETIONS, Home

from sapo_client.observe.reports import PeersReport, RolloutsReport, StatusReport, kept_status


def test_the_status_report_has_the_values_of_the_node(two_nodes: Any) -> None:
    home: Home = two_nodes.first
    report = StatusReport.model_validate_json(two_nodes.reports["status"])
    identity = home.identity
    assert (report.state, report.swarm_id) == ("running", home.manifest.swarm_id.hex())
    assert (report.node_id, report.account) == (identity.node_id.hex(), str(identity.account))
    assert (report.peer_id, report.addresses) == (home.peer_id, (home.address,))
    assert (report.peers, report.epoch, report.ledger.enabled) == (1, 0, False)
    assert 0 < report.step <= two_nodes.stopped_at
    assert report.round == report.step  # the first run began at step 0
    assert 0 <= (report.reward or -1) <= 1
    published = {event["content_id"] for event in home.events("published")}
    assert 0 < report.shared <= len(published)
    assert report.sampled_own >= report.round * 2
    assert 0 < report.sampled_external <= report.accepted


def test_the_peer_is_known_by_its_certificate(two_nodes: Any) -> None:
    [peer] = PeersReport.model_validate_json(two_nodes.reports["peers"]).peers
    other: Home = two_nodes.second
    assert (peer.peer_id, peer.node_id) == (other.peer_id, other.identity.node_id.hex())
    assert (peer.account, peer.address) == (str(other.identity.account), other.address)
    assert (peer.score, peer.refused) == (0.0, 0)
    assert peer.accepted > 0


def test_rollouts_of_both_nodes_are_listed_with_their_outcome(two_nodes: Any) -> None:
    rollouts = RolloutsReport.model_validate_json(two_nodes.reports["rollouts"]).rollouts
    authors = {rollout.own: rollout.account for rollout in rollouts}
    accounts = {True: str(two_nodes.first.identity.account), False: str(two_nodes.second.identity.account)}
    assert authors == accounts
    assert {rollout.completions for rollout in rollouts} == {COMPLETIONS}
    assert {rollout.family for rollout in rollouts} == {"calendar_arithmetic"}
    states = {rollout.state for rollout in rollouts if not rollout.own}
    assert "reinforced" in states
    assert states <= {"admitted", "verified", "reinforced", "refused: no_signal"}
    assert all(0 <= r.reward <= 1 for r in rollouts if r.reward is not None)


def test_a_stopped_node_leaves_its_last_status(two_nodes: Any) -> None:
    report = kept_status(two_nodes.first.data)
    assert report is not None
    assert report.state == "stopped"
    assert report.step == two_nodes.first.events("step")[-1]["step"]
