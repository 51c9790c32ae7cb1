"""Entry point of the command `sapo`: Ctrl-C ends it plainly from its first moment on, imports included."""

from __future__ import annotations

import sys


def main() -> None:
    """Run a command; end with the documented exit code, after Ctrl-C with 130 and without a stack."""
    try:
        from sapo_client.imports import collector_paused

        with collector_paused():
            from sapo_client.cli.app import main as run_command

        run_command()
    except KeyboardInterrupt:
        sys.exit(130)  # as `ExitCode.INTERRUPTED`, which an interrupted import may have left unknown
