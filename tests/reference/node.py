"""Section 6: a node's admission, slow and plain. Takes bytes and a time, returns verdict, reason and rule."""

from collections.abc import Callable, Iterable
from typing import Any

from reference import audits, derive, edwards, ethereum, ladders, objects
from reference.refusal import ACCEPTED, Outcome, Refused, require

MAX_NODES_OF_AN_ACCOUNT = 4
MIN_EXTENSION = 3600
CARRIED = {
    "rollouts": {"rollout"},
    "certificates": {"certificate"},
    "contributions": {"tally", "proposal", "approval"},
    "equivocations": {"equivocation"},
    "commitments": {"commitment"},
}

Verify = Callable[[bytes, bytes, bytes], bool]


class ReferenceNode:
    """One node of one swarm.

    Args:
        manifest: the manifest file's content.
        auditors: the accounts that may count.
        verify: strict Ed25519; the slow one unless a caller knows better.
    """

    def __init__(
        self, manifest: dict[str, Any], auditors: Iterable[bytes] = (), verify: Verify = edwards.verify
    ) -> None:
        self._manifest = manifest
        self._swarm = derive.swarm_id(manifest)
        self._auditors = set(auditors)
        self._verify = verify
        self._certificates: dict[tuple[bytes, bytes], dict[str, Any]] = {}
        self._signers: set[tuple[bytes, bytes]] = set()
        self._displaced: dict[tuple[bytes, bytes], dict[str, Any]] = {}
        self._seen: set[bytes] = set()
        self._places: dict[tuple[str, bytes, int, int], int] = {}
        self._slots: set[tuple[int, bytes, int]] = set()
        self._proved: set[tuple[int, bytes]] = set()
        self._bonds: dict[int, dict[bytes, int]] = {}
        self._paid: dict[int, list[int]] = {0: []}
        self._replacements: list[Any] = []
        self._terms: list[tuple[int, dict[str, Any]]] = []
        self._known_until: int | None = None

    def learn_bonds(self, epoch: int, bonded: dict[bytes, int]) -> None:
        """Take what each account has bonded in an epoch."""
        self._bonds[epoch] = bonded

    def learn_paid(self, epoch: int, paid: list[int]) -> None:
        """Take how many accounts were paid in the epochs that an epoch's number of islands rests on."""
        self._paid[epoch] = paid

    def learn_changes(self, terms: dict[str, Any] | None, replacements: list[Any]) -> None:
        """Take what the chain announces: successors of the terms, and replacements of auditors."""
        self._replacements = replacements
        if terms is not None:
            self._terms = derive.successors(self._manifest, terms["announced"])
            self._known_until = terms["known_until"]

    def _auditors_of(self, epoch: int) -> list[bytes]:
        founders = [account.hex() for account in self._auditors]
        return [bytes.fromhex(one) for one in derive.auditors(founders, self._replacements, epoch)]

    def _is_auditor_about(self, account: bytes, now_ms: int) -> bool:
        now = self._around(now_ms)[-2]
        epochs = {max(0, now - 16), *(since for since, _, _ in self._replacements)}
        found = [self._auditors_of(epoch) for epoch in epochs if now - 16 <= epoch <= now + 8]
        return any(account in those for those in found)

    def validate(self, topic: str, message: bytes, now_ms: int) -> Outcome:
        """Return verdict, reason and rule of a message that came over a topic."""
        use, _, island = topic.partition("/")
        judges = {
            "rollouts": self._rollout,
            "certificates": self._certificate,
            "contributions": self._contribution,
            "equivocations": self._equivocation,
            "commitments": self._commitment,
        }
        try:
            envelope = objects.envelope(message, self._swarm, commits=use == "commitments")
            require(envelope["kind"] in CARRIED[use], "R2.4")
            judges[use](envelope | {"island": int(island or 0)}, now_ms)
        except Refused as refused:
            return refused.outcome
        return ACCEPTED

    def _rollout(self, envelope: dict[str, Any], now_ms: int) -> None:
        read = envelope | objects.rollout(envelope["payload"])
        self._require_begun(read["epoch"], now_ms)
        require(now_ms < derive.start(self._manifest, read["epoch"] + 2) + 500, "R3.2")
        require(read["content_id"] not in self._seen, "R4.1")
        require(self._home(read["account"], read["epoch"]) == envelope["island"], "R6.7")
        self._require_bond(read["account"], read["epoch"])
        self._require_introduced(read, now_ms)
        self._require_assignable(read)
        self._require_signed(read, "R7.1")
        slot = (read["epoch"], read["account"], read["slot"])
        require(slot not in self._slots, "R6.4")
        self._slots.add(slot)
        self._seen.add(read["content_id"])
        self._signers.add((read["node"], read["account"]))

    def _around(self, now_ms: int) -> list[int]:
        now = derive.epoch_of(self._manifest, max(now_ms, derive.start(self._manifest, 0)))
        return [epoch for epoch in (now - 1, now, now + 1) if epoch >= 0]

    def _home(self, account: bytes, epoch: int) -> int:
        """Return the island of an account, whose beacons are those of a swarm without a chain."""
        islands = self._manifest.get("islands")
        if islands is None:
            return 0
        begin = derive.drawn(self._swarm, account, epoch, islands["period_epochs"])
        beacon = derive.beacon(self._swarm, begin, b"")
        newest = max(known for known in self._paid if known <= epoch)
        one_in = (self._manifest.get("audits") or {"one_in": 1})["one_in"]
        count = derive.island_count(islands, self._paid[newest], one_in)
        return derive.home(self._swarm, beacon, account, count)

    def _require_begun(self, epoch: int, now_ms: int) -> None:
        require(derive.start(self._manifest, epoch) - 500 <= now_ms, "R3.1")

    def _require_bond(self, account: bytes, epoch: int) -> None:
        known = [one for one in self._bonds if one <= epoch]
        gate = self._manifest.get("gate") or {"kind": "open"}
        if known and gate["kind"] != "open":
            require(self._bonds[max(known)].get(account, 0) > 0, "R5.6")

    def _require_introduced(self, read: dict[str, Any], now_ms: int, *, proves: bool = False) -> None:
        key = (read["node"], read["account"])
        certificate = self._certificates.get(key) or (self._displaced.get(key) if proves else None)
        if certificate is None:
            raise Refused("R5.1")
        require(_counts(certificate, now_ms), "R5.2")

    def _require_quota(self, read: dict[str, Any]) -> None:
        require(self._known_until is None or read["epoch"] <= self._known_until, "R6.11")
        slots, _, _ = derive.terms_at(self._manifest, self._terms, read["epoch"])
        require(read["slot"] < slots, "R6.1")

    def _require_assignable(self, read: dict[str, Any]) -> None:
        self._require_quota(read)
        _, completions, families = derive.terms_at(self._manifest, self._terms, read["epoch"])
        require(len(read["completions"]) <= completions, "R6.2")
        require(read["family"] in families, "R6.3")

    def _require_signed(self, read: dict[str, Any], rule: str) -> None:
        require(self._verify(read["node"], read["signed"], read["signature"]), rule)

    def _certificate(self, envelope: dict[str, Any], now_ms: int) -> None:
        read = envelope | objects.certificate(envelope["payload"])
        homes = [self._home(read["account"], epoch) for epoch in self._around(now_ms)]
        counts = self._is_auditor_about(read["account"], now_ms)
        require(envelope["island"] in homes or counts, "R6.8")
        if not counts:
            self._require_bond(read["account"], self._around(now_ms)[-2])
        self._require_signed(read, "R7.1")
        separator = ethereum.domain(
            self._manifest["chain_id"], derive.unhex(self._manifest["registry"] or "00" * 20)
        )
        digest = ethereum.node_binding(
            separator, read["node"], self._swarm, read["not_before"], read["not_after"]
        )
        signer = ethereum.signer(digest, read["account_signature"])
        require(signer == read["account"], "R5.4")
        require(_counts(read, now_ms), "R5.5")
        known = self._certificates.get((read["node"], read["account"]))
        if known is not None and _counts(known, now_ms):
            require(read["not_after"] >= known["not_after"] + MIN_EXTENSION, "R4.2")
        self._keep(read)

    def _keep(self, read: dict[str, Any]) -> None:
        key = (read["node"], read["account"])
        self._certificates.pop(key, None)
        siblings = [other for other in self._certificates if other[1] == read["account"]]
        if len(siblings) >= MAX_NODES_OF_AN_ACCOUNT:
            lost = self._certificates.pop(siblings[0])
            if siblings[0] in self._signers:
                self._displaced[siblings[0]] = lost
        self._certificates[key] = read

    def _contribution(self, envelope: dict[str, Any], now_ms: int) -> None:
        read = envelope | self._counted(envelope)
        require(derive.start(self._manifest, read["epoch"] + 1) <= now_ms, "R3.3")
        require(now_ms < derive.start(self._manifest, read["epoch"] + 17), "R3.5")
        require(read["content_id"] not in self._seen, "R4.3")
        self._require_introduced(read, now_ms)
        auditors = self._auditors_of(read["epoch"])
        require(read["account"] in auditors, "R5.3")
        turn = read.get("turn", 0)
        require(turn < derive.turns(self._manifest), "R6.5")
        if read["kind"] == "proposal":
            require(auditors[(read["epoch"] + turn) % len(auditors)] == read["account"], "R6.6")
        if "record" in read:
            levels = self._manifest["difficulty"]["ladders"]
            require(ladders.adds_up(levels, read["record"]), "R6.10")
        self._require_signed(read, "R7.1")
        place = (read["kind"], read["account"], read["epoch"], turn)
        require(self._places.get(place, 0) < 2, "R4.5")
        self._places[place] = self._places.get(place, 0) + 1
        self._seen.add(read["content_id"])

    def _commitment(self, envelope: dict[str, Any], now_ms: int) -> None:
        read = envelope | objects.commitment(envelope["payload"])
        end = derive.start(self._manifest, read["epoch"] + 1)
        require(end - 500 <= now_ms, "R3.6")
        require(now_ms < end + audits.grace_ms(self._manifest) + 500, "R3.7")
        require(read["content_id"] not in self._seen, "R4.6")
        require(self._home(read["account"], read["epoch"]) == envelope["island"], "R6.7")
        self._require_bond(read["account"], read["epoch"])
        self._require_introduced(read, now_ms)
        self._require_quota({"epoch": read["epoch"], "slot": audits.slots_of(read["slots"])[-1]})
        self._require_signed(read, "R7.1")
        place = ("commitment", read["account"], read["epoch"], 0)
        require(self._places.get(place, 0) < 2, "R4.7")
        self._places[place] = self._places.get(place, 0) + 1
        self._seen.add(read["content_id"])

    def _counted(self, envelope: dict[str, Any]) -> dict[str, Any]:
        if envelope["kind"] == "approval":
            return objects.approval(envelope["payload"])
        has_ladders = self._manifest.get("difficulty") is not None
        families = len(self._manifest["suite"]["families"]) if has_ladders else 0
        read = objects.tally if envelope["kind"] == "tally" else objects.proposal
        return read(envelope["payload"], families)

    def _equivocation(self, envelope: dict[str, Any], now_ms: int) -> None:
        rollouts = objects.proof(envelope, self._swarm)
        epoch, account = rollouts[0]["epoch"], rollouts[0]["account"]
        self._require_begun(epoch, now_ms)
        require(now_ms < derive.start(self._manifest, epoch + 13), "R3.4")
        require((epoch, account) not in self._proved, "R4.4")
        homes = [self._home(account, one) for one in (epoch, *self._around(now_ms))]
        require(envelope["island"] in homes, "R6.9")
        for read in rollouts:
            self._require_introduced(read, now_ms, proves=True)
        self._require_quota(rollouts[0])
        for read in rollouts:
            self._require_signed(read, "R7.3")
        self._proved.add((epoch, account))


def _counts(certificate: dict[str, Any], now_ms: int) -> bool:
    begin: int = certificate["not_before"]
    end: int = certificate["not_after"]
    return begin * 1000 <= now_ms < end * 1000
