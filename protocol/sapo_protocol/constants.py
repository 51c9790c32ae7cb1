"""Every protocol constant, with the reason for its value."""

from typing import Final

PROTOCOL_VERSION: Final = 1
"""Part of the signed tag: a change here makes every signature of an older version meaningless."""

LATEST_MANIFEST: Final = 2
"""Manifests carry a version of their own: a new term founds new swarms, and changes no frame or signature."""

MAX_ENVELOPE_BYTES: Final = 128 * 1024
"""Twice a full group with its framing. A larger message is refused before it is parsed."""

MAX_GROUP_BYTES: Final = 64 * 1024
"""Eight long answers of a small model are under 40 KiB."""

MAX_COMPLETION_BYTES: Final = 8 * 1024
"""About 2,000 tokens; families set tighter caps of their own."""

MAX_COMPLETIONS: Final = 16
"""Twice the paper's group size L = 8."""

MAX_NESTING: Final = 4
"""The deepest object, a manifest inside its envelope, needs four levels."""

MAX_VALUES: Final = 8192
"""Twice the values of the largest object, a proposal with 1,024 shares; bounds what decoding allocates."""

MAX_FLAT_VALUES: Final = 64
"""For envelopes and for every payload without long lists: twice the 31 values of a full rollout.

A map of one pair is three bytes on the wire and 200 in memory."""

LAST_RESERVED: Final = 23
"""Largest reserved number, for message kinds and for the keys of each map; 23 is the largest in one CBOR
byte.

Unassigned numbers up to it belong to later versions: a message with one is ignored, and no peer is
penalised."""

MAX_FAMILIES: Final = 256
"""A family index fits one byte; ReasoningGYM registers 106."""

MAX_PAGE_ROWS: Final = 1024
"""Accounts in a message or on a page: 1,024 entries of 28 bytes are 28 KiB."""

MAX_PAGES: Final = 256
"""Of a tally or a proposal: a quarter of a million accounts, whose digests are 9 KiB."""

MAX_REQUESTED_PAGES: Final = 24
"""In one request: the largest pages, 41 KiB each, fit into one response."""

MAX_UINT64: Final = 2**64 - 1
"""Deterministic CBOR carries no larger plain integer."""

SEED_BITS: Final = 31
"""ReasoningGYM passes seeds to numpy, which takes 32 bits, and adds the item index to them."""

CLOCK_SLACK_SECONDS: Final = 0.5
"""Ethereum's gossip allowance: wide enough for NTP, too narrow to precompute an epoch."""

EPOCH_WINDOW: Final = 1
"""A rollout of the previous epoch is still accepted: it may have been on its way when the epoch ended."""

OVERLAP_SECONDS: Final = 60
"""Before and after an epoch for which a node carries its islands: until it is connected to their members, and
their meshes stand; a quarter of an epoch if that is less."""

SETTLED_EPOCHS: Final = 2
"""How many epochs after its end an epoch may be settled: a slow chain alone does not make it fail."""

ROUND_TURNS: Final = 16
"""Turns in a round. Those of each following round last twice as long, so that some turn exceeds any delay."""

CONTRIBUTION_EPOCHS: Final = 16
"""How many epochs after its end an epoch's contributions are accepted, for nodes that were away."""

PAID_EPOCHS: Final = 12
"""Epochs from which the number of islands is derived. Few enough that their contributions are still exchanged
(``CONTRIBUTION_EPOCHS``) when a node that has just joined needs them."""

MERGED_EPOCHS: Final = 6
"""Final epochs of few paid accounts in a row after which islands merge: half of those that are counted. If
one was enough, accounts that are paid in every second epoch alone would make all others move in each."""

CONTRIBUTIONS_PER_TURN: Final = 2
"""Of one account, kind, epoch and turn: one is honest, and the second proves that the first is not."""

PROOF_EPOCHS: Final = 12
"""How many epochs after the equivocation its proof is accepted: as long as it has consequences."""

MAX_CERTIFICATE_SECONDS: Final = 400 * 24 * 3600
"""Longest validity of a certificate: a year and some weeks to renew it in."""
