"""Learner whose model is on a Tinker server: the same calls as for a model that is trained here.

A checkpoint here holds everything but weights and moments; these are saved on the server, and the checkpoint
has their address.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.checkpoint import LearnerCounters
from sapo_client.learner.loading.prompts import choose_form
from sapo_client.learner.loading.reading import load_tokenizer
from sapo_client.learner.policy import Policy
from sapo_client.learner.ranks.group import RankGroup
from sapo_client.learner.remote.model import CPU, RemoteModel
from sapo_client.learner.remote.replies import SERVER_AWAY
from sapo_client.learner.remote.tinker_server import TinkerServer
from sapo_client.learner.remote.tinker_trainer import TinkerGenerator, TinkerTrainer, require_possible
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.wire import HAPPENED, Message


class TinkerService(Service):
    """Policy on a Tinker server behind the learner's named calls.

    Args:
        settings: of the learner.

    Raises:
        SapoError: the server refuses the model, or a setting is not possible there.
    """

    def about(self) -> Message:
        """Return step, architecture and device, the reply to the start of a learner."""
        device = self._settings.endpoint or "Tinker"
        return {
            "step": self._trainer.steps,
            "parameters": 0,
            "architecture": self._settings.model,
            "device": device,
        }

    def export(self, folder: str) -> Message:
        """Raise: the weights are on the server.

        Raises:
            SapoError: always; it names the address of the weights.
        """
        path = self._server.save(f"export-{self._trainer.steps}")
        raise SapoError(
            f"the weights are on the server, as {path}",
            hint=f"download them there, as with `tinker checkpoint download {path}`",
            exit_code=ExitCode.USAGE,
        )

    def _open(self, settings: LearnerSettings, ranks: RankGroup) -> None:
        require_possible(settings)
        self._max_tokens = None
        self._server = TinkerServer(settings)
        name = self._server.tokenizer_name
        tokenizer = load_tokenizer(name)
        end = int(tokenizer.eos_token_id)
        model = RemoteModel(lambda rows: self._server.forward(rows))
        self._policy = Policy(model, tokenizer, CPU, end, end, form=choose_form(name, tokenizer))
        self._generator = TinkerGenerator(self._server, self._policy)
        self._trainer = TinkerTrainer(self._policy, settings, ranks, server=self._server)

    def _counters(self, name: str) -> LearnerCounters:
        path = self._server.save(f"{Path(self._settings.directory).name}-{name}-{self._trainer.steps}")
        return LearnerCounters(self._samples, path)

    def _restored(self, counters: LearnerCounters) -> None:
        assert counters.remote is not None  # a model without parameters here is on a server
        self._server.load(counters.remote)


class ReopenedTinker:
    """Calls of a learner on a Tinker server; after a failure there they continue from the last checkpoint.

    A call that failed may have reached the model there in part, and the server may have ended its session.

    Args:
        settings: of the learner.

    Raises:
        SapoError: as ``TinkerService`` says.
    """

    def __init__(self, settings: LearnerSettings) -> None:
        self._settings = settings
        self._service = TinkerService(settings)
        self._failed = ""
        self._happened: list[tuple[str, Message]] = []

    def about(self) -> Message:
        """Return step, architecture and device, the reply to the start of a learner."""
        return self._service.about()

    def call(self, name: str, arguments: dict[str, Any]) -> Message:
        """Return the result of a call by its name.

        Raises:
            SapoError: it is refused, or the server does not answer (transient).
        """
        if self._failed:
            self._service = TinkerService(replace(self._settings, fresh=False))
            step = self._service.about()["step"]
            self._happened.append(("learner_restarted", {"step": step, "why": self._failed}))
            self._failed = ""
        try:
            result = self._service.call(name, arguments)
        except SapoError as error:
            self._failed = error.text if error.finding == SERVER_AWAY else ""
            raise
        happened, self._happened = [*self._happened, *result.get(HAPPENED, ())], []
        return {**result, HAPPENED: happened} if happened else result
