"""Errors of the ledger, with texts and hints for users."""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar

from sapo_client.errors import ExitCode, SapoError


class LedgerError(SapoError):
    """The chain or its contracts do not match the manifest, or refuse a request.

    Attributes:
        kind: label under which it is counted in the metrics.
    """

    kind: ClassVar[str] = "other"

    def __init__(self, text: str, *, hint: str) -> None:
        super().__init__(text, hint=hint, exit_code=ExitCode.LEDGER)


class LedgerUnavailable(LedgerError):
    """No endpoint of the chain answers at the moment."""

    kind = "unavailable"
    transient = True

    def __init__(self, urls: Sequence[str], reason: str) -> None:
        super().__init__(
            f"no answer from the chain at {', '.join(urls)}: {reason}",
            hint="check the RPC address and that the chain is running; own training goes on unshared",
        )


class NotYet(LedgerError):
    """An endpoint cannot answer yet, but will be able to."""

    kind = "not_yet"
    transient = True


class Disagreement(LedgerError):
    """The endpoints contradict each other, and no majority decides."""

    kind = "disagreement"
    transient = True

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the RPC addresses disagree about {what}",
            hint="they are asked again; where that does not help, a third address decides",
        )


class RecordHidden(LedgerError):
    """No endpoint shows a record whose hash is in the ledger's state; a reorganisation looks the same."""

    transient = True

    def __init__(self, block: int) -> None:
        super().__init__(
            f"no RPC address shows the final epoch that the ledger recorded in block {block}",
            hint="they are asked again; where that does not help, name another one: these hide or change it",
        )


class BondsHidden(LedgerError):
    """No endpoint shows a change of bonds whose hash is in the contract's state."""

    transient = True

    def __init__(self, block: int) -> None:
        super().__init__(
            f"no RPC address shows the change of the accounts' bonds that was recorded in block {block}",
            hint="they are asked again; where that does not help, name another one: these hide or change it",
        )


class AttestationsInvented(LedgerError):
    """Every endpoint shows attestations for the gate that are not on the chain."""

    transient = True

    def __init__(self) -> None:
        super().__init__(
            "no RPC address shows the attestations of this swarm as the chain holds them",
            hint="they are asked again; where that does not help, name another one: these invent some",
        )


class WrongChain(LedgerError):
    """Every endpoint serves another chain than the manifest names.

    Before a node starts that is a mistake of its user; later it is an error of the endpoint, and transient.
    """

    kind = "wrong_chain"
    transient = True

    def __init__(self, urls: Sequence[str], reason: str) -> None:
        super().__init__(f"{', '.join(urls)}: {reason}", hint="give the RPC address of the manifest's chain")


class ErrorCounts:
    """Errors by kind since they were last taken; from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def note(self, error: Exception) -> None:
        """Count one error; one that is not ours is of the kind ``rpc``."""
        with self._lock:
            self._counts[error.kind if isinstance(error, LedgerError) else "rpc"] += 1

    def take(self) -> Mapping[str, int]:
        """Return the counts, and reset them."""
        with self._lock:
            taken, self._counts = self._counts, Counter()
        return taken
