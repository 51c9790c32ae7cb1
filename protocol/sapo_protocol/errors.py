"""The two families of protocol errors.

``LocalProtocolError`` is a mistake of this node, ``RemoteProtocolError`` one of a peer. The parsers of this
package raise no other exception, whatever bytes they are given.
"""

from sapo_protocol.rules import Reason, Rule, Verdict

__all__ = ["LocalProtocolError", "ProtocolError", "Reason", "RemoteProtocolError", "Verdict"]


class ProtocolError(Exception):
    """The common base class; never raised itself."""


class LocalProtocolError(ProtocolError):
    """Our own mistake: a value that must not be put on the wire."""


class LaterReleaseError(LocalProtocolError):
    """A manifest with a version, field or kind that this release does not know."""


class RemoteProtocolError(ProtocolError):
    """A peer's mistake: the rule that it breaks, whose reason decides the verdict."""

    def __init__(self, rule: Rule, detail: str) -> None:
        super().__init__(f"{rule} {rule.reason}: {detail}")
        self.rule = rule
        self.reason = rule.reason
        self.detail = detail
