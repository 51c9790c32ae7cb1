"""`python -m support.chain_questions`: number of requests of a node to an endpoint of its chain in a day.

A node that audits nothing, in a swarm with epochs of two hours whose postings can be challenged for an hour,
as the defaults of a public chain are; with no posting, and with a live one that it cannot explain and looks
at most closely. Transactions, and a beacon at the beginning of an epoch, come on top.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import trio
from support.auditor_harness import AUDITORS, FAR_SECONDS, QUORUM, WORKERS, AuditorHarness, World, checking
from support.ledger import keys, make_root, sign
from web3.types import RPCEndpoint, RPCResponse

from sapo_client.ledger.answers import StrictProvider

EPOCH_SECONDS: Final = 7200
CHALLENGE_SECONDS: Final = 3600
DAY_SECONDS: Final = 86_400


class Count(Counter[str]):
    """Requests by method, of all providers of this process from now on."""

    def __init__(self) -> None:
        super().__init__()
        make_request = StrictProvider.make_request

        def counted(provider: StrictProvider, method: RPCEndpoint, params: Any) -> RPCResponse:
            self[method] += 1
            return make_request(provider, method, params)

        StrictProvider.make_request = counted  # type: ignore[method-assign, assignment]


async def measure(seconds: float) -> None:
    """Print the requests of a day, from a number of seconds without and with a posting."""
    with TemporaryDirectory() as folder:
        world = World.create(Path(folder), epoch_seconds=EPOCH_SECONDS, challenge_seconds=CHALLENGE_SECONDS)
        world.manifest = world.contracts.manifest(epoch_seconds=EPOCH_SECONDS)
        epoch = 3
        world.turn_to(epoch + 1, 600)
        me = WORKERS[0]
        world.contracts.register(keys(me.number), me.node, FAR_SECONDS)  # for a block of now
        async with checking(world) as (nursery, checkers):
            count = Count()
            nursery.start_soon(AuditorHarness(world, me, checkers, audits=False).run)
            for posting in ("without a posting", "with a live posting"):
                await trio.sleep(10)  # the terms are read once
                count.clear()
                await trio.sleep(seconds)
                by_method = ", ".join(f"{method} {number}" for method, number in count.most_common())
                a_day = round(count.total() * DAY_SECONDS / seconds)
                print(f"{posting}: {a_day:,} requests a day ({by_method} in {seconds:.0f} s)", flush=True)
                if world.contracts.ledger.live() is None:
                    root = make_root(epoch)
                    signers = [keys(each.number) for each in AUDITORS[:QUORUM]]
                    signatures = sign(root, world.manifest.ledger_domain, signers)
                    world.contracts.post(root, signatures)
        world.chain.close()


def main() -> None:
    """Measure for the seconds of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="of each measurement")
    trio.run(measure, parser.parse_args().seconds)


if __name__ == "__main__":
    main()
