"""Attestations for a manifest's gate, read from the Ethereum Attestation Service as of a block."""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from eth_utils import keccak, to_checksum_address
from web3 import Web3
from web3.exceptions import BadFunctionCallOutput, ContractLogicError, Web3RPCError
from web3.types import BlockIdentifier, FilterParams

from sapo_client.ledger.errors import AttestationsInvented, LedgerError, NotYet
from sapo_client.ledger.rpc import Rpc
from sapo_protocol.identifiers import Account, Digest
from sapo_protocol.terms.gate import Attestation, EasGate

_ATTESTED: Final = keccak(text="Attested(address,address,bytes32,bytes32)")
_REVOKED: Final = keccak(text="Revoked(address,address,bytes32,bytes32)")

_CHUNKS: Final = (10_000, 1_000, 100, 10)
"""Blocks per ``eth_getLogs`` request: what public endpoints allow, and fewer where those refuse."""

_MAX_CHUNKS: Final = 50
"""Consecutive requests for logs to one endpoint before what it shows is checked."""

_BATCH: Final = 32
"""Attestations looked up in one call. As many are read again for each new block, those read longest ago
first, since an endpoint may hide a revocation."""

_ATTESTATION: Final = (
    ("uid", "bytes32"),
    ("schema", "bytes32"),
    ("time", "uint64"),
    ("expirationTime", "uint64"),
    ("revocationTime", "uint64"),
    ("refUID", "bytes32"),
    ("recipient", "address"),
    ("attester", "address"),
    ("revocable", "bool"),
    ("data", "bytes"),
)
_SCHEMA: Final = (("uid", "bytes32"), ("resolver", "address"), ("revocable", "bool"), ("schema", "string"))


def _view(name: str, takes: str | None, fields: tuple[tuple[str, str], ...] | None) -> dict[str, Any]:
    """Return the interface of a view that returns a structure, or an address."""
    returned: dict[str, Any] = {"name": "", "type": "address"}
    if fields is not None:
        returned = {"name": "", "type": "tuple", "components": [{"name": n, "type": t} for n, t in fields]}
    return {
        "type": "function",
        "name": name,
        "stateMutability": "view",
        "inputs": [{"name": "uid", "type": takes}] if takes else [],
        "outputs": [returned],
    }


_SERVICE_ABI: Final = [
    _view("getAttestation", "bytes32", _ATTESTATION),
    _view("getSchemaRegistry", None, None),
]
_REGISTRY_ABI: Final = [_view("getSchema", "bytes32", _SCHEMA)]


@dataclass(frozen=True, slots=True)
class AttestationSchema:
    """A schema as it is registered with the service, where nothing of it ever changes.

    Attributes:
        resolver: the contract that is called for each attestation and revocation; none if there is none.
    """

    uid: Digest
    resolver: Account | None
    is_revocable: bool

    @property
    def concerns(self) -> tuple[str, ...]:
        """Return warnings for the founder of a gate with this schema."""
        found = []
        if self.resolver is not None:
            found.append(
                f"the contract {self.resolver} resolves the schema: its owner can refuse attestations,"
                " and can keep attesters from revoking them"
            )
        if not self.is_revocable:
            found.append("attestations of the schema cannot be revoked: an account counts until they expire")
        return tuple(found)


@dataclass(frozen=True, slots=True)
class _Block:
    digest: Digest
    seconds: int


@dataclass(frozen=True, slots=True)
class _Logs:
    """What one endpoint shows of the blocks up to ``last``: uids, and whether it showed the end of each."""

    web3: Web3
    last: int
    chunk: int
    uids: Mapping[Digest, bool]


@dataclass(frozen=True, slots=True)
class _Progress:
    """Up to which block an endpoint was read and verified, and which of ``_CHUNKS`` it allows."""

    last: int
    chunk: int = 0


class AttestationService:
    """The Ethereum Attestation Service, as far as a gate needs it; every method blocks."""

    def __init__(self, rpc: Rpc, gate: EasGate, only: Account | None = None) -> None:
        self._rpc = rpc
        self._gate = gate
        self._recipients = None if only is None else _word(only)

    def schema(self) -> AttestationSchema | None:
        """Return the gate's schema; none if the service does not have it."""

        def ask(web3: Web3, block: BlockIdentifier) -> AttestationSchema:
            service = web3.eth.contract(address=to_checksum_address(self._gate.contract), abi=_SERVICE_ABI)
            try:
                place = service.functions.getSchemaRegistry().call(block_identifier=block)
                registry = web3.eth.contract(address=place, abi=_REGISTRY_ABI)
                found = registry.functions.getSchema(bytes(self._gate.schema)).call(block_identifier=block)
            except (BadFunctionCallOutput, ContractLogicError) as error:
                raise self._no_service() from error
            uid, resolver, is_revocable, _ = found
            return AttestationSchema(
                Digest(uid), _unless_zero(Account.from_hex(resolver)), bool(is_revocable)
            )

        found = self._rpc.read(ask, "the schema of the attestations")
        return found if any(found.uid) and found.uid == self._gate.schema else None  # zeros: not registered

    def attestations(self, uids: Sequence[Digest]) -> tuple[Attestation | None, ...]:
        """Return the attestations with these uids as they are now; None for one that does not count for the
        gate.

        Raises:
            NotYet, Disagreement, LedgerUnavailable: the endpoints do not answer, or contradict each other.
        """

        def ask(web3: Web3, block: BlockIdentifier) -> tuple[Attestation | None, ...]:
            service = web3.eth.contract(address=to_checksum_address(self._gate.contract), abi=_SERVICE_ABI)
            try:
                return tuple(
                    self._ours(service.functions.getAttestation(bytes(uid)).call(block_identifier=block))
                    for uid in uids
                )
            except (BadFunctionCallOutput, ContractLogicError) as error:
                raise self._no_service() from error

        return self._rpc.read(ask, "attestations")

    def _ours(self, answer: Any) -> Attestation | None:
        _, schema, attested, expires, revoked, _, recipient, attester, _, _ = answer
        accounts = Account.from_hex(recipient), Account.from_hex(attester)
        found = Attestation(Digest(schema), *accounts, attested, expires, revoked)
        return found if self._gate.is_ours(found) else None

    def block(self, number: int) -> _Block:
        """Return hash and timestamp of a block, as the endpoints agree."""

        def ask(web3: Web3) -> _Block:
            found: Any = web3.eth.get_block(number)
            return _Block(Digest(bytes(found["hash"])), int(found["timestamp"]))

        return self._rpc.agree(ask, f"block {number}")

    def logs(self, web3: Web3, first: int, last: int) -> dict[Digest, bool]:
        """Return the uids that one endpoint shows in some blocks, and whether they were revoked there."""
        attesters = [_word(attester) for attester in self._gate.attesters]
        wanted: FilterParams = {
            "address": to_checksum_address(self._gate.contract),
            "fromBlock": _number(first),
            "toBlock": _number(last),
            "topics": [
                [_hex(_ATTESTED), _hex(_REVOKED)],
                self._recipients,
                attesters,
                _hex(self._gate.schema),
            ],
        }
        found: dict[Digest, bool] = {}
        for log in web3.eth.get_logs(wanted):
            data, topics = bytes(log["data"]), log["topics"]
            if len(data) == Digest.SIZE and topics:
                uid = Digest(data)
                found[uid] = found.get(uid, False) or bytes(topics[0]) == _REVOKED
        return found

    def _no_service(self) -> NotYet:
        return NotYet(
            f"there is no attestation service at {to_checksum_address(self._gate.contract)}",
            hint="use the RPC address of the manifest's chain, and the manifest of this swarm",
        )


class AttestationHistory:
    """The attested accounts as of a block.

    The events of all endpoints are joined, each block read once from each endpoint. Every uid is then looked
    up in the state, as the endpoints agree, so none of them can invent one, and it takes one honest endpoint
    for none to be missed. Where all hide an attestation, or a revocation, that is believed: the service keeps
    no hash over its events. An attestation says itself when it was made and revoked, so no state of an old
    block is asked for.

    A new block costs an endpoint two questions for blocks, one for logs, and one call for each new event and
    for each attestation that is read again.

    Args:
        only: whose attestations alone are read.
    """

    def __init__(self, rpc: Rpc, gate: EasGate, only: Account | None = None) -> None:
        self._rpc = rpc
        self._gate = gate
        self._service = AttestationService(rpc, gate, only)
        self._lock = threading.Lock()
        self._known: dict[Digest, Attestation] = {}  # those read longest ago first
        self._progress: dict[Web3, _Progress] = {}
        self._begun: tuple[int, Digest] | None = None  # the last block up to which any endpoint was read
        self._complete = gate.after_block
        self._since_seconds: int | None = None

    def at(self, block: int) -> Mapping[Account, int]:
        """Return the number of attestations of each account that count in the state after a block.

        Args:
            block: a settled block, which no reorganisation will remove.

        Raises:
            NotYet, Disagreement, LedgerUnavailable: the endpoints do not agree on the attestations' state.
            AttestationsInvented: none of them shows all blocks without attestations that do not exist.
        """
        if block <= self._gate.after_block:
            return {}
        with self._lock:
            asked = self._service.block(block)
            self._forget_if_reorganised(block, asked)
            if block > self._complete:
                self._begun = block, asked.digest
                self._catch_up(block)
                self._read_again()
                self._complete = block
            if self._since_seconds is None:
                self._since_seconds = self._service.block(self._gate.after_block).seconds
            times = {"since_seconds": self._since_seconds, "block_seconds": asked.seconds}
            counted = [one for one in self._known.values() if self._gate.accepts(one, **times)]
            return Counter(one.recipient for one in counted)

    def _forget_if_reorganised(self, block: int, asked: _Block) -> None:
        """Forget what was read from blocks that a reorganisation removed."""
        if self._begun is None:
            return
        number, digest = self._begun
        found = asked if number == block else self._service.block(number)
        if found.digest != digest:
            self._known, self._progress, self._begun = {}, {}, None
            self._complete, self._since_seconds = self._gate.after_block, None

    def _catch_up(self, block: int) -> None:
        """Read all events up to a block from all endpoints whose events are verified."""
        aside: set[Web3] = set()
        behind = True
        while behind:
            answers = self._rpc.each(
                lambda web3: None if web3 in aside else self._more_logs(web3, block), sure=True
            )
            shown = [(answer.endpoint, answer.value) for answer in answers if answer.value is not None]
            unable = [answer.unable for answer in answers if answer.unable is not None]
            if not shown and unable:
                raise unable[0]
            for endpoint, logs in shown:
                if not self._take(logs):
                    aside.add(logs.web3)
                    endpoint.disagreed("it shows an attestation, or its end, that is not on the chain")
            right = [logs for _, logs in shown if logs.web3 not in aside]
            if not right:
                raise AttestationsInvented
            behind = any(logs.last < block for logs in right)

    def _take(self, logs: _Logs) -> bool:
        """Look up the attestations an endpoint shows; return whether all are right, and only then advance."""
        new = [uid for uid, ended in logs.uids.items() if not self._holds(uid, revoked=ended)]
        for at in range(0, len(new), _BATCH):
            batch = new[at : at + _BATCH]
            self._read(batch)
            if not all(self._holds(uid, revoked=logs.uids[uid]) for uid in batch):
                return False  # the rest may be invented, too
        self._progress[logs.web3] = _Progress(logs.last, logs.chunk)
        return True

    def _more_logs(self, web3: Web3, block: int) -> _Logs:
        """Read the next logs of this endpoint."""
        progress = self._progress.get(web3) or _Progress(self._gate.after_block)
        found: dict[Digest, bool] = {}
        last, size = progress.last, progress.chunk
        if last < block and web3.eth.block_number < block:
            raise NotYet(f"it has no block {block} yet", hint="wait for it")
        for _ in range(_MAX_CHUNKS):
            if last >= block:
                break
            until = min(last + _CHUNKS[size], block)
            try:
                shown = self._service.logs(web3, last + 1, until)
            except Web3RPCError:
                if size + 1 == len(_CHUNKS):
                    raise
                size += 1
                continue
            for uid, revoked in shown.items():
                found[uid] = revoked or found.get(uid, False)
            last = until
        return _Logs(web3, last, size, found)

    def _holds(self, uid: Digest, *, revoked: bool) -> bool:
        known = self._known.get(uid)
        return known is not None and (not revoked or known.revocation_seconds > 0)

    def _read(self, uids: Sequence[Digest]) -> None:
        """Look attestations up; known ones are kept, for only a reorganisation removes one."""
        for uid, found in zip(uids, self._service.attestations(uids), strict=True):
            if (kept := found or self._known.get(uid)) is not None:
                self._known.pop(uid, None)
                self._known[uid] = kept

    def _read_again(self) -> None:
        """Look some of those up again that are not revoked."""
        alive = [uid for uid, one in self._known.items() if not one.revocation_seconds]
        if alive:
            self._read(alive[:_BATCH])


def attestations_of(rpc: Rpc, gate: EasGate, account: Account) -> int:
    """Return the number of an account's attestations that count now, where a new epoch's block is the last.

    Raises:
        LedgerError: the endpoints do not answer, or contradict each other.
    """
    return AttestationHistory(rpc, gate, only=account).at(rpc.survey()).get(account, 0)


def require_service(rpc: Rpc, gate: EasGate) -> AttestationSchema:
    """Return the gate's schema; raise unless the service behind a manifest's gate has it.

    Raises:
        LedgerError: it does not, or is none.
    """
    schema = AttestationService(rpc, gate).schema()
    if schema is None:
        raise LedgerError(
            f"the attestation service at {gate.contract} knows no schema {gate.schema}",
            hint="ask whoever gave you the manifest for the right one",
        )
    return schema


def _unless_zero(account: Account) -> Account | None:
    return account if any(account) else None


def _word(account: Account) -> Any:
    return _hex(bytes(account).rjust(Digest.SIZE, b"\0"))


def _hex(data: bytes) -> Any:
    return "0x" + bytes(data).hex()


def _number(number: int) -> Any:
    return number
