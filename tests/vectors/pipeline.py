"""Admission at one node: the result of the engine's admission of each topic, without its other effects."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from vectors.world import Announced

from sapo_protocol.epochs import beacon, present_epoch
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Manifest
from sapo_protocol.manifest_file import successor_from_json
from sapo_protocol.tasks import Task
from sapo_protocol.terms.auditors import Auditors, Replacement
from sapo_verification.admission.contributions import AdmittedContribution
from sapo_verification.engine import Engine
from sapo_verification.islands import TopicIslands
from sapo_verification.jail.messages import Checked
from sapo_verification.reputation.penalties import verdict

Outcome = tuple[str, str | None, str | None]
"""Verdict, reason and rule; the last two are missing where the verdict is ACCEPT."""

_NOBODY = Account(bytes(20))


async def _check(task: Task, completions: Sequence[bytes]) -> Checked:
    raise AssertionError("admission scores nothing")


class Pipeline:
    """The outcomes of messages at a node of one swarm.

    Args:
        auditors: the accounts that may count.
        certificates: messages that the node has admitted before.
        at_seconds: when it admitted them.
        replacements: of auditors.
        announced: successors of the manifest's terms; without them the manifest's own are certain for ever.
    """

    def __init__(
        self,
        manifest: Manifest,
        auditors: Iterable[Account] = (),
        certificates: Iterable[bytes] = (),
        at_seconds: float = 0.0,
        replacements: tuple[Replacement, ...] = (),
        announced: Announced | None = None,
    ) -> None:
        for epoch, document in announced.documents if announced else ():
            manifest = manifest.succeeded_by(epoch, successor_from_json(document))
        engine = Engine(
            manifest,
            ":memory:",
            own=_NOBODY,
            check=_check,
            beacon_of=lambda epoch: beacon(manifest.swarm_id, epoch, b""),
            key=bytes(32),
        )
        self._manifest, self._engine = manifest, engine
        self._auditors = Auditors(tuple(sorted(auditors)), replacements)
        engine.set_auditors(self._auditors)
        engine.islands.learn(0, ())  # nothing is final on the chain
        if announced is not None:
            engine.admission.terms.known_until = announced.known_until
        for message in certificates:
            engine.certificates.admit(message, at_seconds)
        self._contributions = engine.contributions
        self._standing = engine.standing
        self._islands = engine.islands
        self._admit_contribution = engine.contribution_admission.admit
        self._on_islands: Mapping[str, Callable[[bytes, float, TopicIslands], object]] = {
            "rollouts": engine.admission.admit,
            "certificates": engine.certificates.admit,
            "equivocations": engine.proofs.admit,
            "commitments": engine.sampled.commitments.admit,
        }

    def learn_bonds(self, epoch: int, bonded: Mapping[Account, int]) -> None:
        """Take what the chain says of an epoch's bonds."""
        self._standing.learn(epoch, bonded)

    def learn_paid(self, epoch: int, paid: Sequence[int]) -> None:
        """Take how many accounts were paid in the final epochs that an epoch's islands rest on."""
        self._islands.learn(epoch, paid)

    def validate(self, topic: str, message: bytes, now_ms: int) -> Outcome:
        """Return the outcome of a message that came over a topic; what is accepted is known from then on.

        A topic's name may end in the number of an island: ``rollouts/1``.
        """
        if self._auditors.replacements:
            now = present_epoch(self._manifest, now_ms / 1000)
            self._engine.set_auditors(self._auditors, now)
        try:
            admitted = self._admit(topic, message, now_ms / 1000)
        except RemoteProtocolError as error:
            return str(verdict(error.reason)), str(error.reason), error.rule.number
        if isinstance(admitted, AdmittedContribution):
            self._contributions.add(admitted.content_id, admitted.kind, admitted.content, message)
        return "accept", None, None

    def _admit(self, topic: str, message: bytes, now_seconds: float) -> object:
        if topic == "contributions":
            return self._admit_contribution(message, now_seconds)
        use, _, island = topic.partition("/")
        return self._on_islands[use](message, now_seconds, frozenset({int(island or 0)}))
