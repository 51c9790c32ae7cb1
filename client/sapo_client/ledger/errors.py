"""What goes wrong with the ledger, in words for people."""

from collections.abc import Sequence

from sapo_client.errors import ExitCode, SapoError


class LedgerError(SapoError):
    """The chain or its contracts are not what the manifest promises, or they refuse."""

    def __init__(self, text: str, *, hint: str) -> None:
        super().__init__(text, hint=hint, exit_code=ExitCode.LEDGER)


class LedgerUnavailable(LedgerError):
    """No endpoint of the chain answers at the moment."""

    transient = True

    def __init__(self, urls: Sequence[str], reason: str) -> None:
        super().__init__(
            f"no answer from the chain at {', '.join(urls)}: {reason}",
            hint="check the RPC address and that the chain is running; training goes on without it",
        )


class NotYet(LedgerError):
    """An endpoint cannot say now what it will be able to say."""

    transient = True


class Disagreement(LedgerError):
    """The endpoints contradict each other, and no majority decides."""

    transient = True

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the RPC addresses disagree about {what}",
            hint="they are asked again; where that does not help, a third address decides",
        )


class RecordHidden(LedgerError):
    """No endpoint shows a record whose hash the ledger's state holds; a reorganisation looks the same."""

    transient = True

    def __init__(self, block: int) -> None:
        super().__init__(
            f"no RPC address shows the final epoch that the ledger recorded in block {block}",
            hint="they are asked again; where that does not help, name another one: these hide or change it",
        )


class WrongChain(LedgerError):
    """Every endpoint serves another chain than the manifest names.

    Before a node starts that is a mistake of its user; later it is the endpoint's, and passes.
    """

    transient = True

    def __init__(self, urls: Sequence[str], reason: str) -> None:
        super().__init__(f"{', '.join(urls)}: {reason}", hint="give the RPC address of the manifest's chain")
