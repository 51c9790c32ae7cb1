"""`python -m sapo_client.learner.ranks`: a rank other than 0; rank 0 starts it, and it ends with rank 0."""

from __future__ import annotations

import os
import signal
import sys
import threading

from sapo_client.errors import SapoError
from sapo_client.imports import collector_paused

with collector_paused():
    from sapo_client.learner.ranks.launch import RankLost, end_of_process, join_from, report_end
    from sapo_client.learner.ranks.memory import MicroBatchTooLarge
    from sapo_client.learner.ranks.server import follow
    from sapo_client.learner.ranks.serving import quiet_libraries


def main() -> None:
    """Run the calls that rank 0 passes on."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    sys.excepthook = report_end
    threading.Thread(target=_end_with_input, daemon=True).start()
    quiet_libraries()
    ranks = join_from(os.environ)
    try:
        follow(ranks)
    except SapoError:
        threading.Event().wait()  # the leader reports it to the node, which ends the leader and so this rank
    except (MicroBatchTooLarge, RankLost) as error:
        end_of_process(error, ranks.rank)


def _end_with_input() -> None:
    """End the process at once when rank 0 ends, even in the middle of a step."""
    while os.read(0, 4096):
        pass  # rank 0 writes nothing
    os._exit(0)


if __name__ == "__main__":
    main()
