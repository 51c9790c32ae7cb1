"""Errors of the JSON-RPC, with the codes that clients expect."""

from typing import Final

PARSE: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
REFUSED: Final = -32000
"""Error code of every node for an unacceptable transaction or call."""
REVERTED: Final = 3
"""The code under which clients look for a contract's own error in the data."""


class ChainClosed(Exception):
    """There is no chain any more. Never an answer: an error object could pass for a refusal that lasts."""


class RpcError(Exception):
    """A response with the reason why there is no result."""

    def __init__(self, code: int, message: str, data: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def to_json(self) -> dict[str, object]:
        """Return the error object of the answer."""
        plain: dict[str, object] = {"code": self.code, "message": self.message}
        return plain if self.data is None else {**plain, "data": self.data}
