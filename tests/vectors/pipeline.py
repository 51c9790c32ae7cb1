"""The pipeline as one node wires it: every topic's validator, over one store of certificates."""

from collections.abc import Iterable

from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.manifest import Manifest
from sapo_verification.admission.certificates import CertificateBook
from sapo_verification.admission.contributions import AdmittedContribution, ContributionAdmission
from sapo_verification.admission.equivocations import ProofBook
from sapo_verification.admission.rollouts import Admission
from sapo_verification.reputation.evidence import Reputation
from sapo_verification.reputation.penalties import verdict

Outcome = tuple[str, str | None, str | None]
"""Verdict, reason and rule; the last two are missing where the verdict is ACCEPT."""

_NOBODY = Account(bytes(20))


class Pipeline:
    """The outcomes of messages at a node of one swarm.

    Args:
        auditors: the accounts that may count.
        certificates: a store that others share; an empty one unless given.
    """

    def __init__(
        self,
        manifest: Manifest,
        auditors: Iterable[Account] = (),
        certificates: CertificateBook | None = None,
    ) -> None:
        book = CertificateBook(manifest) if certificates is None else certificates
        known: set[ContentId] = set()
        accounts = frozenset(auditors)
        contributions = ContributionAdmission(manifest, book, known.__contains__, lambda: accounts)
        self._known = known
        self._validators = {
            "rollouts": Admission(manifest, book).admit,
            "certificates": book.admit,
            "contributions": contributions.admit,
            "equivocations": ProofBook(manifest, book, Reputation(), _NOBODY).admit,
        }

    def validate(self, topic: str, message: bytes, now_ms: int) -> Outcome:
        """Return the outcome of a message that came over a topic; what is accepted is known from then on."""
        try:
            admitted = self._validators[topic](message, now_ms / 1000)
        except RemoteProtocolError as error:
            return str(verdict(error.reason)), str(error.reason), error.rule.number
        if isinstance(admitted, AdmittedContribution):
            self._known.add(admitted.content_id)
        return "accept", None, None
