"""An invitation: a swarm's manifest with the addresses that a newcomer needs, as one link or one file.

A link is ``sapo://SWARM_ID?...``. Its parameters:

================  ==============================================================================
``manifest``      the manifest itself: JSON, deflated, base64url; or instead of it
``at``            http(s) address of the manifest or of an invitation file
``rpc``           JSON-RPC endpoint of the swarm's chain; may be repeated
``faucet``        http(s) address that sends coins to newcomers
``bootstrap``     multiaddress of a node; may be repeated
================  ==============================================================================

The swarm id is the manifest's digest, so whoever serves the manifest cannot replace it by another swarm's.
Name and bootstrap addresses are outside the digest: nodes authenticate each other by their keys.
An invitation file is JSON with the same parameters and ``format``; a plain manifest is one, too.
"""

from __future__ import annotations

import binascii
import json
import urllib.error
import urllib.request
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from sapo_client.errors import ExitCode, SapoError, later_hint
from sapo_client.swarm.addresses import parse_address
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import SwarmId
from sapo_protocol.json_text import require_shallow
from sapo_protocol.manifest import Manifest
from sapo_protocol.manifest_file import manifest_from_json, manifest_to_json

FORMAT: Final = "sapo/invitation/1"
SCHEME: Final = "sapo"

MAX_BYTES: Final = 1 << 20
"""Maximum size of a download and of an inflated manifest; a manifest with every family takes 60 kB."""

_MAX_LINK: Final = 1 << 16
_SECONDS: Final = 20.0
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_PARAMETERS: Final = frozenset({"manifest", "at", "rpc", "faucet", "bootstrap"})

Fetch = Callable[[str], bytes]
"""Downloads an http(s) address; raises OSError or ValueError."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """A swarm, and how to reach it.

    Attributes:
        proved: whether the source named the swarm id separately, so that the manifest was checked against it.
    """

    manifest: Manifest
    rpc_urls: tuple[str, ...] = ()
    faucet: str | None = None
    bootstrap: tuple[str, ...] = ()
    proved: bool = False


def read_invitation(text: str, fetch: Fetch | None = None) -> Invitation:
    """Return the invitation in a ``sapo://`` link, at an http(s) address or in a file.

    Args:
        fetch: downloads an address; unset: over the network.

    Raises:
        SapoError: it is malformed or damaged (exit code 3), or cannot be reached (exit code 5).
    """
    scheme = urlsplit(text).scheme if "://" in text else ""
    if scheme == SCHEME:
        return _from_link(text, fetch or download)
    if scheme in ("http", "https"):
        address, _, digest = text.partition("#")
        swarm_id = _swarm_id(digest, text) if digest else None
        _require_safe(address, proved=swarm_id is not None)
        return _checked(_from_document(_fetched(address, fetch or download), address), swarm_id, address)
    if scheme not in ("", "file"):
        raise _refuse(f"{_short(text)} is not an invitation: {scheme}:// is unknown")
    return _from_document(_read(Path(text.removeprefix("file://")).expanduser()), text)


def link(invitation: Invitation, *, at: str | None = None) -> str:
    """Return an invitation as a link.

    Args:
        at: address that serves the manifest; unset: the link contains it.
    """
    content = at or urlsafe_b64encode(zlib.compress(_compact(invitation.manifest), 9)).decode().rstrip("=")
    parameters = [
        *(("rpc", url) for url in invitation.rpc_urls),
        *([("faucet", invitation.faucet)] if invitation.faucet else []),
        *(("bootstrap", address) for address in invitation.bootstrap),
        ("at" if at else "manifest", content),
    ]
    query = urlencode(parameters, quote_via=quote, safe="/:")
    return f"{SCHEME}://{invitation.manifest.swarm_id}?{query}"


def require_addresses(web: Iterable[tuple[str, str | None]], bootstrap: Sequence[str]) -> None:
    """Raise unless every client can use the addresses that a new link or invitation is to name.

    Args:
        web: the options that name http(s) addresses, with their values.
        bootstrap: addresses of nodes, as given with ``--bootstrap``.

    Raises:
        SapoError: one of them is none (exit code 3).
    """
    for option, url in web:
        if url is not None and not _is_web(url):
            raise SapoError(
                f"{option} {_short(url)} is not an http(s) address",
                hint="give the whole address, such as https://example.org",
                exit_code=ExitCode.CONFIG,
            )
    for address in bootstrap:
        require_node_address("--bootstrap", address)


def require_node_address(option: str, address: str) -> None:
    """Raise unless an address that others are to dial is that of a node.

    Args:
        option: with which it was given.
        address: as given, with its peer id.

    Raises:
        SapoError: it is malformed, or stands for every interface of a machine (exit code 3).
    """
    parsed = parse_address(address)
    if parsed is None:
        raise SapoError(
            f"{option} {_short(address)} is not the address of a node",
            hint="`sapo status` of that node shows it: /ip4/203.0.113.7/tcp/4001/p2p/12D3Koo...",
            exit_code=ExitCode.CONFIG,
        )
    if parsed.unspecified:
        raise SapoError(
            f"{option} {_short(address)} cannot be dialled: {parsed.host} stands for every interface",
            hint="put that machine's IP address in its place; `sapo status` of its node shows it",
            exit_code=ExitCode.CONFIG,
        )


def to_file(invitation: Invitation) -> str:
    """Return an invitation as the JSON text of a file that can be served."""
    document = {
        "format": FORMAT,
        "swarm": str(invitation.manifest.swarm_id),
        "manifest": json.loads(manifest_to_json(invitation.manifest)),
        "rpc": list(invitation.rpc_urls),
        "faucet": invitation.faucet,
        "bootstrap": list(invitation.bootstrap),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect to an encrypted address, or on the same host, and no other."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Return the request for the new address.

        Raises:
            URLError: anybody on the way could answer it, or it leads into somebody's own network.
        """
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        is_same = (after.scheme, after.hostname) == ("http", before.hostname) and before.scheme == "http"
        if after.scheme != "https" and not is_same:
            raise urllib.error.URLError(f"it redirects to {_short(newurl)}, which is not encrypted")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def download(address: str) -> bytes:
    """Return the content at an http(s) address, at most ``MAX_BYTES`` of it and one byte more.

    Raises:
        OSError: it cannot be reached.
    """
    opener = urllib.request.build_opener(_SafeRedirects)
    with opener.open(address, timeout=_SECONDS) as response:  # http(s) only, see caller
        content: bytes = response.read(MAX_BYTES + 1)
        return content


def _from_link(text: str, fetch: Fetch) -> Invitation:
    if len(text) > _MAX_LINK:
        raise _refuse(f"the link has {len(text)} characters; at most {_MAX_LINK} are read")
    parts = urlsplit(text)
    swarm_id = _swarm_id(parts.netloc or parts.path.strip("/"), text)
    try:
        found = parse_qs(parts.query, keep_blank_values=True, strict_parsing=True, max_num_fields=100)
    except ValueError as error:
        raise _refuse(f"the parameters of {_short(text)} cannot be read: {error}") from error
    if unknown := sorted(set(found) - _PARAMETERS):
        raise _refuse(f"the link has a parameter {unknown[0]}, which is unknown")
    places = len(found.get("at", ())) + len(found.get("manifest", ()))
    if places == 0:
        raise _refuse("the link is incomplete: it neither holds the swarm's manifest nor says where it is")
    if places > 1:
        raise _refuse("the link names the swarm's manifest more than once")
    if "at" in found:
        [address] = found["at"]
        _require_safe(address, proved=True)
        invitation = _from_document(_fetched(address, fetch), address)
    else:
        invitation = Invitation(_manifest(_unpacked(found["manifest"][0]), "the manifest in the link"))
    return _checked(_with(invitation, found, "the link"), swarm_id, found.get("at", ["the link"])[0])


def _from_document(content: bytes, source: str) -> Invitation:
    """Return the invitation in a file, which may be a plain manifest."""
    if len(content) > MAX_BYTES:
        raise _refuse(f"{source} is larger than {MAX_BYTES} bytes")
    try:
        text = content.decode()
        document: Any = json.loads(require_shallow(text))
    except (LocalProtocolError, ValueError) as error:
        raise _refuse(f"{source} is not a manifest: {error}") from error
    if not isinstance(document, dict) or "format" not in document:
        return Invitation(_manifest(text, source))
    if document["format"] != FORMAT:
        raise _refuse(f"{source} has the format {document['format']!r}, not {FORMAT}")
    fields = {name: document.get(name) for name in ("rpc", "faucet", "bootstrap")}
    given = {name: _texts(name, value, source) for name, value in fields.items() if value is not None}
    manifest = _manifest(json.dumps(document.get("manifest")), source)
    swarm_id = _swarm_id(document["swarm"], source) if isinstance(document.get("swarm"), str) else None
    unproved = replace(_with(Invitation(manifest), given, source), proved=False)
    return replace(_checked(unproved, swarm_id, source), proved=False)


def _with(invitation: Invitation, given: Mapping[str, Sequence[str]], source: str) -> Invitation:
    """Return the invitation with the addresses of its source, which replace those of the manifest."""
    rpc = tuple(_web(url, "rpc", source) for url in given.get("rpc", ())) or invitation.rpc_urls
    faucets = tuple(_web(url, "faucet", source) for url in given.get("faucet", ()))
    if len(faucets) > 1:
        raise _refuse(f"{source} names {len(faucets)} faucets; one is enough")
    bootstrap = tuple(given.get("bootstrap", ())) or invitation.bootstrap
    for address in bootstrap:
        parsed = parse_address(address)
        if parsed is not None and parsed.unspecified:
            raise SapoError(
                f"--bootstrap {_short(address)} names no machine: {parsed.host} stands for any",
                hint="put that machine's IP address in its place; `sapo status` of its node lists them",
                exit_code=ExitCode.CONFIG,
            )
        if parsed is None:
            raise _refuse(f"{source} names a bootstrap address that is none: {_short(address)}")
    faucet = faucets[0] if faucets else invitation.faucet
    return replace(invitation, rpc_urls=rpc, faucet=faucet, bootstrap=bootstrap)


def _checked(invitation: Invitation, swarm_id: SwarmId | None, source: str) -> Invitation:
    """Return the invitation; raise unless its manifest has the named swarm id."""
    if swarm_id is None:
        return invitation
    if (found := invitation.manifest.swarm_id) != swarm_id:
        raise SapoError(
            f"{source} holds the manifest of swarm {found.hex()[:12]}, the link is for {swarm_id.hex()[:12]}",
            hint="somebody changed the manifest or the link: ask whoever invited you for the link again",
            exit_code=ExitCode.CONFIG,
        )
    return replace(invitation, proved=True)


def _texts(name: str, value: object, source: str) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if isinstance(texts, list) and all(isinstance(text, str) for text in texts):
        return texts
    raise _refuse(f"{source}: {name} must be text, or a list of texts")


def _swarm_id(text: str, source: str) -> SwarmId:
    try:
        return SwarmId.from_hex(text)
    except LocalProtocolError as error:
        raise _refuse(f"{_short(source)} names no swarm id, which has 64 hexadecimal digits") from error


def _web(url: str, what: str, source: str) -> str:
    if not _is_web(url):
        raise _refuse(f"{source} names an address of {what} that is not http(s): {_short(url)}")
    return url


def _is_web(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable()
    except ValueError:
        return False


def _require_safe(address: str, *, proved: bool) -> None:
    _web(address, "manifest", "the link" if proved else "the command")
    parts = urlsplit(address)
    if parts.scheme == "http" and not proved and parts.hostname not in _LOOPBACK:
        raise _refuse(f"{_short(address)} is not encrypted, so anybody on the path could replace it")


def _fetched(address: str, fetch: Fetch) -> bytes:
    try:
        return fetch(address)
    except (OSError, ValueError) as error:
        raise SapoError(
            f"cannot download {_short(address)}: {_why(error)}",
            hint="check the address and the connection, or ask whoever invited you for the file",
            exit_code=ExitCode.NETWORK,
        ) from error


def _why(error: OSError | ValueError) -> str:
    """Return why a download failed, without the names of exceptions."""
    if isinstance(error, urllib.error.HTTPError):
        return f"it answers {error.code}"
    if isinstance(error, urllib.error.URLError):  # urllib packs the system's error into its own
        cause = error.reason
        return (cause.strerror if isinstance(cause, OSError) else None) or str(cause)
    return str(error)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SapoError(
            f"cannot read the invitation {path}: {error.strerror}",
            hint="name a sapo:// link, an https address, or a file with a manifest",
            exit_code=ExitCode.CONFIG,
        ) from error


def _unpacked(packed: str) -> str:
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(urlsafe_b64decode(packed + "=" * (-len(packed) % 4)), MAX_BYTES)
        text = content.decode()
    except (binascii.Error, zlib.error, ValueError) as error:
        raise _refuse("the manifest in the link is cut off or damaged") from error
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise _refuse("the manifest in the link is cut off or too large")
    return text


def _manifest(text: str, source: str) -> Manifest:
    try:
        return manifest_from_json(text)
    except LocalProtocolError as error:
        raise _refuse(f"{source} is not a manifest: {error}", later_hint(error)) from error


def _compact(manifest: Manifest) -> bytes:
    return json.dumps(json.loads(manifest_to_json(manifest)), separators=(",", ":")).encode()


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


def _refuse(text: str, hint: str | None = None) -> SapoError:
    return SapoError(
        text,
        hint=hint or "copy the whole link from whoever runs the swarm; in a shell, put it between quotes",
        exit_code=ExitCode.CONFIG,
    )
