"""`python -m sapo_client.ledger.chain`: run the embedded chain until a signal ends it."""

import argparse
import signal
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from sapo_client import locks
from sapo_client.atomic_files import write_atomically
from sapo_client.errors import ExitCode, SapoError
from sapo_client.ledger.chain import DEFAULT_CHAIN_ID, ENDPOINT_FILE
from sapo_client.ledger.chain.embedded import EmbeddedChain, Genesis, alloc
from sapo_client.ledger.chain.methods import Methods
from sapo_client.ledger.chain.server import ChainServer
from sapo_protocol.errors import LocalProtocolError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGINT or SIGTERM; the exit code."""
    # The same handler for both: a block under way is either on disk or never happened.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _serve(_parse(arguments))
    except SapoError as error:
        print(f"error: {error.text}\nhint: {error.hint}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        pass
    return ExitCode.DONE


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="sapo_client.ledger.chain", description="Run the embedded chain.")
    parser.add_argument("--data", type=Path, required=True, help="folder of the chain; created if missing")
    parser.add_argument("--port", type=int, default=0, help="loopback port; 0 takes any free one")
    parser.add_argument("--chain-id", type=int, default=DEFAULT_CHAIN_ID)
    parser.add_argument(
        "--fund", nargs="+", default=[], metavar="ADDRESS", help="accounts that hold coins from the start"
    )
    return parser.parse_args(arguments)


def _serve(options: argparse.Namespace) -> None:
    folder: Path = options.data
    folder.mkdir(parents=True, exist_ok=True)
    with locks.lock(folder / "lock", what=f"the chain in {folder}", exit_code=ExitCode.LEDGER):
        (folder / ENDPOINT_FILE).unlink(missing_ok=True)
        with closing(Methods(EmbeddedChain(folder / "chain.sqlite", _genesis(options)))) as methods:
            _listen(methods, folder, options.port)


def _genesis(options: argparse.Namespace) -> Genesis:
    try:
        return Genesis(options.chain_id, alloc(options.fund))
    except LocalProtocolError as error:
        raise SapoError(
            str(error), hint="give addresses as 0x and 40 digits", exit_code=ExitCode.USAGE
        ) from error


def _listen(methods: Methods, folder: Path, port: int) -> None:
    try:
        server = ChainServer(methods, port)
    except OSError as error:
        raise SapoError(
            f"cannot listen on port {port}: {error.strerror}",
            hint="choose another one with --port, or 0 for any",
            exit_code=ExitCode.NETWORK,
        ) from error
    with server:
        write_atomically(folder / ENDPOINT_FILE, server.url + "\n")
        server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
