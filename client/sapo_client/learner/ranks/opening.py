"""Creation of the object that handles a learner's calls: local, on a server, or of several ranks."""

from __future__ import annotations

from pathlib import Path

from sapo_client.learner.ranks.hosts import SocketCalls
from sapo_client.learner.ranks.launch import number_of_ranks, start_others, uses_gpu
from sapo_client.learner.ranks.server import Leader
from sapo_client.learner.ranks.serving import Calls
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings


def open_calls(settings: LearnerSettings) -> Calls:
    """Return the object that handles the calls of a learner; with several ranks, start the others.

    Raises:
        SapoError: the service cannot start, or there are fewer GPUs than ranks.
    """
    if settings.tinker:
        from sapo_client.learner.remote.tinker_service import ReopenedTinker

        return ReopenedTinker(settings)
    if settings.ranks_socket is not None:
        return SocketCalls(settings, Path(settings.ranks_socket))
    size = number_of_ranks(settings)
    if size == 1:
        return Service(settings)
    return Leader(settings, start_others(size, settings.directory, on_gpu=uses_gpu(settings)))
