"""Section 6: a node's ears, slow and plain. Takes bytes and a time, answers a verdict and a reason."""

from collections.abc import Callable
from typing import Any

from reference import derive, edwards, ethereum, objects
from reference.refusal import VERDICTS, Refused, require

MOST_NODES_OF_AN_ACCOUNT = 4

Verify = Callable[[bytes, bytes, bytes], bool]


class ReferenceNode:
    """One node of one swarm.

    Args:
        manifest: the manifest file's content.
        verify: strict Ed25519; the slow one unless a caller knows better.
    """

    def __init__(self, manifest: dict[str, Any], verify: Verify = edwards.verify) -> None:
        self._manifest = manifest
        self._swarm = derive.swarm_id(manifest)
        self._verify = verify
        self._certificates: dict[tuple[bytes, bytes], dict[str, Any]] = {}
        self._seen: set[bytes] = set()
        self._slots: set[tuple[int, bytes, int]] = set()

    def judge(self, topic: str, message: bytes, now_ms: int) -> tuple[str, str | None]:
        """Verdict and reason of a message that came over a topic."""
        try:
            {"rollouts": self._rollout, "certificates": self._certificate}[topic](message, now_ms)
        except Refused as refused:
            return VERDICTS[refused.reason], refused.reason
        return "accept", None

    def _open(self, message: bytes, kind: str) -> dict[str, Any]:
        """Envelope and object, if the topic carries it."""
        envelope = objects.envelope(message, self._swarm)
        require(envelope["kind"] == kind, "wrong_kind")
        return envelope | objects.PAYLOADS[kind](envelope["payload"])

    def _rollout(self, message: bytes, now_ms: int) -> None:
        read = self._open(message, "rollout")
        self._require_epoch(read["epoch"], now_ms)
        require(read["content_id"] not in self._seen, "seen")
        self._require_introduced(read, now_ms)
        self._require_assignable(read)
        require(self._verify(read["node"], read["signed"], read["signature"]), "bad_signature")
        slot = (read["epoch"], read["account"], read["slot"])
        require(slot not in self._slots, "equivocation")
        self._slots.add(slot)
        self._seen.add(read["content_id"])

    def _require_epoch(self, epoch: int, now_ms: int) -> None:
        require(derive.start(self._manifest, epoch) - 500 <= now_ms, "epoch_future")
        require(now_ms < derive.start(self._manifest, epoch + 2) + 500, "epoch_past")

    def _require_introduced(self, read: dict[str, Any], now_ms: int) -> None:
        certificate = self._certificates.get((read["node"], read["account"]))
        require(certificate is not None, "certificate_unknown")
        require(_counts(certificate, now_ms), "certificate_expired")

    def _require_assignable(self, read: dict[str, Any]) -> None:
        limits, families = self._manifest["limits"], self._manifest["suite"]["families"]
        require(read["slot"] < limits["slots_per_epoch"], "slot_over_quota")
        require(len(read["completions"]) <= limits["max_completions"], "out_of_bounds")
        require(read["family"] < len(families), "unknown_family")

    def _certificate(self, message: bytes, now_ms: int) -> None:
        read = self._open(message, "certificate")
        require(self._verify(read["node"], read["signed"], read["signature"]), "bad_signature")
        separator = ethereum.domain(
            self._manifest["chain_id"], derive.unhex(self._manifest["registry"] or "00" * 20)
        )
        digest = ethereum.node_binding(
            separator, read["node"], self._swarm, read["not_before"], read["not_after"]
        )
        signer = ethereum.signer(digest, read["account_signature"])
        require(signer == read["account"], "certificate_malformed")
        require(_counts(read, now_ms), "certificate_expired")
        known = self._certificates.get((read["node"], read["account"]))
        counts = known is not None and _counts(known, now_ms)
        require(not counts or read["not_after"] > known["not_after"], "seen")
        self._keep(read)

    def _keep(self, read: dict[str, Any]) -> None:
        key = (read["node"], read["account"])
        self._certificates.pop(key, None)
        siblings = [other for other in self._certificates if other[1] == read["account"]]
        if len(siblings) >= MOST_NODES_OF_AN_ACCOUNT:
            del self._certificates[siblings[0]]
        self._certificates[key] = read


def _counts(certificate: dict[str, Any], now_ms: int) -> bool:
    return certificate["not_before"] * 1000 <= now_ms < certificate["not_after"] * 1000
