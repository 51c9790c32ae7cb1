"""Cost of admission compared with its unavoidable part, the verification of the signature."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sapo_client.bench.spread import Spread
from sapo_client.bench.swarm import GROUP, BenchAuthor, BenchSwarm
from sapo_protocol.ed25519 import is_signature_over
from sapo_protocol.envelope import Kind, open_payload, parse_envelope, signed_bytes
from sapo_protocol.identifiers import NodeId

ROUNDS: Final = 15
"""Number of rounds; both sides are measured in turn, so that other load on the machine affects both."""

COMPLETION: Final = b"the sum of the two is 12, so the answer is 12"


@dataclass(frozen=True, slots=True)
class AdmissionRate:
    """Messages per second of processor time, and admission's rate as a share of bare verification's."""

    message_bytes: int
    bare_per_second: Spread
    admitted_per_second: Spread
    share: Spread


def admission_rate(messages: int) -> AdmissionRate:
    """Measure stages 0 to 7 of genuine messages against libsodium alone on the same signatures."""
    swarm, author = BenchSwarm(), BenchAuthor(0)
    sent = [swarm.message(author, 0, slot, [COMPLETION] * GROUP) for slot in range(messages)]
    signed = _signed(swarm, sent)
    bare, admitted = [], []
    for _ in range(ROUNDS):
        bare.append(messages / _seconds(lambda: _verify_all(signed, author.node)))
        gate = swarm.admission([author])
        admitted.append(
            messages / _seconds(lambda gate=gate: [gate.admit(m, swarm.now_seconds) for m in sent])  # type: ignore[misc]
        )
    share = Spread.of_ratios(admitted, bare)
    return AdmissionRate(len(sent[0]), Spread.of(bare), Spread.of(admitted), share)


def _signed(swarm: BenchSwarm, sent: Sequence[bytes]) -> list[bytes]:
    """Return signature and signed bytes concatenated, as libsodium expects them."""
    envelopes = [parse_envelope(message, swarm.manifest.swarm_id) for message in sent]
    return [e.signature + signed_bytes(e.kind, e.swarm_id, open_payload(e, Kind.ROLLOUT)) for e in envelopes]


def _verify_all(signed: Sequence[bytes], node: NodeId) -> None:
    for data in signed:
        is_signature_over(node, data)


def _seconds(work: Callable[[], object]) -> float:
    """Return processor time, which other processes affect less than wall time."""
    gc.collect()
    began = time.process_time()
    work()
    return time.process_time() - began
