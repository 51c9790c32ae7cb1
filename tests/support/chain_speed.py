"""Speed of the embedded chain: `python tests/support/chain_speed.py` mines the recorded blocks again.

It prints the processor seconds that the import of the machine takes, the blocks per processor second (each on
disk before the next begins; the second figure leaves the deployment out), and the bytes on disk per block.
"""

import gzip
import tempfile
import time
from contextlib import closing
from pathlib import Path

from sapo_client.ledger.chain import DEFAULT_CHAIN_ID
from sapo_client.ledger.chain.embedded import EmbeddedChain, Genesis, load_machine

RECORDED = Path(__file__).parents[1] / "client" / "ledger" / "data" / "chain-0.1.0.sqlite.gz"
DEPLOYMENT_BLOCKS = 11


def main() -> None:
    """Replay the recorded chain, then mine its transactions one by one on a new one."""
    started = time.process_time()
    load_machine()
    print(f"import: {time.process_time() - started:.2f} s")
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "old.sqlite"
        old.write_bytes(gzip.decompress(RECORDED.read_bytes()))
        with closing(EmbeddedChain(old, Genesis(DEFAULT_CHAIN_ID, ()))) as chain:
            headers = [chain.header(number) for number in range(chain.head.block_number + 1)]
            raws = [chain._store.raw(header.block_number) or b"" for header in headers[1:]]
            genesis = chain.genesis
        clock = [float(headers[0].timestamp)]
        path = Path(folder) / "new.sqlite"
        seconds = []
        with closing(EmbeddedChain(path, genesis, now=lambda: clock[0])) as chain:
            for header, raw in zip(headers[1:], raws, strict=True):
                clock[0] = header.timestamp
                started = time.process_time()
                chain.send(raw)
                seconds.append(time.process_time() - started)
            assert chain.head == headers[-1]
        later = seconds[DEPLOYMENT_BLOCKS:]
        rate, later_rate = len(seconds) / sum(seconds), len(later) / sum(later)
        print(f"blocks per second: {rate:.0f}, later ones {later_rate:.0f}")
        print(f"bytes per block: {path.stat().st_size / len(raws):.0f}")


if __name__ == "__main__":
    main()
