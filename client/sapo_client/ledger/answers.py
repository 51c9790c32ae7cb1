"""Validation of RPC responses on arrival: web3 receives only results of the type that it expects.

An endpoint may be broken, not be an Ethereum node, or lie. web3 raises whatever its formatters run into, so a
malformed result never reaches them: it raises ``BadAnswer``, which counts like a timeout.
"""

import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeGuard, cast

import requests
from eth_typing import URI
from urllib3.exceptions import HTTPError
from web3 import HTTPProvider
from web3.types import RPCEndpoint, RPCResponse

from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.json_text import require_shallow

_PART_BYTES: Final = 65_536
"""Bytes read at a time."""

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of a response, decompressed. Logs of a thousand blocks take some hundred kilobytes in an
ordinary swarm."""

_LIMIT_EXCEEDED: Final = -32005
"""The code of EIP-1474 with which an endpoint refuses a request for too many logs."""


class BadAnswer(Exception):
    """An endpoint's response is malformed; the text names the method."""


class StrictProvider(HTTPProvider):
    """An HTTP provider for web3 that returns only well-formed responses.

    Args:
        url: of the endpoint.
        session: used for all requests, from any thread.
        timeout_seconds: for the whole response, and for its first byte.
        max_bytes: maximum size of a response, decompressed.
    """

    def __init__(
        self, url: str, session: requests.Session, timeout_seconds: float, max_bytes: int = MAX_ANSWER_BYTES
    ) -> None:
        super().__init__(URI(url), exception_retry_configuration=None)  # the asker retries
        self._url = url
        self._session = session
        self._timeout_seconds = timeout_seconds
        self._max_bytes = max_bytes

    def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        """Return the response to a request.

        Logs beyond the maximum size are returned as the error "too many logs", after which fewer are
        requested: spam in blocks must not make an honest endpoint look broken.

        Raises:
            BadAnswer: it is malformed or too long.
            RequestException: no response in time.
        """
        raw = self._post(self.encode_rpc_request(method, params))
        if raw is not None:
            return cast(RPCResponse, parse_response(method, raw))
        text = f"its answer to {method} is longer than {self._max_bytes:,} bytes"
        if method != "eth_getLogs":
            raise BadAnswer(text)
        return {"jsonrpc": "2.0", "id": 0, "error": {"code": _LIMIT_EXCEEDED, "message": text}}

    def _post(self, request: bytes) -> bytes | None:
        """Return the body of the response; none if it is too long.

        It is read as it arrives, so that the limits hold for the whole response and not only between its
        parts. web3 does that byte by byte: it took longer for a block than everything else together. A
        redirect is not followed: an invitation names an endpoint that a stranger chose, who could otherwise
        direct requests to services behind this machine's firewall.
        """
        end = time.monotonic() + self._timeout_seconds
        body = bytearray()
        posted = self._session.post(
            self._url,
            request,
            headers=self.get_request_headers(),
            timeout=self._timeout_seconds,
            stream=True,
            allow_redirects=False,
        )
        with posted as response:
            response.raise_for_status()
            if response.is_redirect:
                raise BadAnswer("it redirects to another address; name that one if it is the endpoint")
            try:
                while part := response.raw.read1(_PART_BYTES, decode_content=True):
                    body += part
                    if time.monotonic() > end:
                        raise requests.ReadTimeout("the answer took too long")
                    if len(body) > self._max_bytes:
                        return None
            except HTTPError as error:
                raise requests.ConnectionError(str(error)) from error
        return bytes(body)


def parse_response(method: str, raw: bytes) -> dict[str, Any]:
    """Return a JSON-RPC response whose result has the type that its method requires.

    Of objects only the fields that are used here are kept, of an error's data only what is hexadecimal, and
    of its message the beginning, without control characters.

    Raises:
        BadAnswer: it is malformed.
    """
    try:
        # Python's parser recurses, and where the limit was raised, deep brackets would end the process.
        response = json.loads(require_shallow(raw.decode("utf-8")))
    except (ValueError, LocalProtocolError) as error:
        raise BadAnswer(f"its answer to {method} is not JSON") from error
    if not isinstance(response, dict):
        raise BadAnswer(f"its answer to {method} is not a JSON-RPC response")
    if response.get("error") is not None:
        return {"jsonrpc": "2.0", "id": 0, "error": _error(method, response["error"])}
    if "result" not in response:
        raise BadAnswer(f"its answer to {method} has no result")
    parse = _RESULTS.get(method)
    if parse is None:
        return response
    try:
        return {"jsonrpc": "2.0", "id": 0, "result": parse(response["result"])}
    except _NotThat as error:
        raise BadAnswer(f"its answer to {method} is {error}") from error


class _NotThat(Exception):
    """A value does not have the expected type; the text describes the mismatch."""


Parse = Callable[[Any], Any]

_MAX_WORDS: Final = 500
"""Characters of an error's message, more than any node writes."""

_MAX_DATA: Final = 8192
"""Digits of an error's data; our contracts' errors take a few hundred."""


def _error(method: str, error: object) -> dict[str, Any]:
    if isinstance(error, dict):
        code, message, data = (error.get(name) for name in ("code", "message", "data"))
        if isinstance(code, int) and isinstance(message, str):
            known = {"code": code, "message": _line(message)}
            return known | ({"data": data} if _is_hexadecimal(data) and len(data) <= _MAX_DATA else {})
    raise BadAnswer(f"its answer to {method} is an error without code or message")


def _line(text: str) -> str:
    """Return an endpoint's message as one short line without control characters."""
    return "".join(sign if sign.isprintable() else "?" for sign in text[:_MAX_WORDS])


def _is_hexadecimal(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and re.fullmatch("0x([0-9a-fA-F]{2})*", value) is not None


def _quantity(bits: int) -> Parse:
    def parse(value: object) -> object:
        if not isinstance(value, str) or not re.fullmatch("0x[0-9a-fA-F]{1,64}", value):
            raise _NotThat("no number")
        if int(value, 16) >> bits:
            raise _NotThat(f"a number beyond {bits} bits")
        return value

    return parse


def _data(size: int | None = None) -> Parse:
    def parse(value: object) -> object:
        if not _is_hexadecimal(value) or (size is not None and len(str(value)) != 2 + 2 * size):
            raise _NotThat("no hexadecimal" if size is None else f"no {size} bytes of hexadecimal")
        return value

    return parse


def _optional(parse: Parse) -> Parse:
    return lambda value: None if value is None else parse(value)


def _object(fields: Mapping[str, Parse], optional: Mapping[str, Parse] | None = None) -> Parse:
    def parse(value: object) -> object:
        if not isinstance(value, dict) or not fields.keys() <= value.keys():
            raise _NotThat(f"no object of {', '.join(fields)}")
        wanted = {**fields, **(optional or {})}
        return {name: each(value[name]) for name, each in wanted.items() if name in value}

    return parse


def _array(item: Parse) -> Parse:
    def parse(value: object) -> object:
        if not isinstance(value, list):
            raise _NotThat("no list")
        return [item(each) for each in value]

    return parse


_WORD: Final = 64
_AMOUNT: Final = 256
_HASH: Final = _data(32)
_ACCOUNT: Final = _data(20)

_BLOCK: Final = _object(
    {"number": _quantity(_WORD), "timestamp": _quantity(_WORD), "hash": _HASH},
    {"baseFeePerGas": _quantity(_AMOUNT), "gasLimit": _quantity(_WORD)},
)
_RECEIPT: Final = _object(
    {
        "blockNumber": _quantity(_WORD),
        "blockHash": _HASH,
        "status": _quantity(1),
        "gasUsed": _quantity(_WORD),
    },
    {"contractAddress": _optional(_ACCOUNT)},
)
_LOG: Final = _object({"address": _ACCOUNT, "topics": _array(_HASH), "data": _data()})

_RESULTS: Final[Mapping[str, Parse]] = {
    "eth_blockNumber": _quantity(_WORD),
    "eth_call": _data(),
    "eth_chainId": _quantity(_WORD),
    "eth_estimateGas": _quantity(_WORD),
    "eth_getBalance": _quantity(_AMOUNT),
    "eth_getBlockByNumber": _optional(_BLOCK),
    "eth_getCode": _data(),
    "eth_getLogs": _array(_LOG),
    "eth_getTransactionCount": _quantity(_WORD),
    "eth_getTransactionReceipt": _optional(_RECEIPT),
    "eth_maxPriorityFeePerGas": _quantity(_AMOUNT),
    "eth_sendRawTransaction": _HASH,
}
"""Parser of the result of every method that is used here; web3 replaces none of them by another one."""
