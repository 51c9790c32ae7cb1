"""The two families of protocol errors.

``LocalProtocolError`` says that we did wrong, ``RemoteProtocolError`` that they did.
Nothing else leaves a parser of this package, whatever bytes it is given.
"""

from sapo_protocol.rules import Reason, Rule, Verdict

__all__ = ["LocalProtocolError", "ProtocolError", "Reason", "RemoteProtocolError", "Verdict"]


class ProtocolError(Exception):
    """The common base class; never raised itself."""


class LocalProtocolError(ProtocolError):
    """Our own mistake: a value that must not be put on the wire."""


class RemoteProtocolError(ProtocolError):
    """A peer's mistake: the rule that it breaks, whose reason decides the verdict."""

    def __init__(self, rule: Rule, detail: str) -> None:
        super().__init__(f"{rule} {rule.reason}: {detail}")
        self.rule = rule
        self.reason = rule.reason
        self.detail = detail
