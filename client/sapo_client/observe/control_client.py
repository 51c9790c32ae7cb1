"""The client of the control API: blocking, for commands that query a running node."""

from __future__ import annotations

import http.client
import json
import os
import secrets
from collections.abc import Collection
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from sapo_client.errors import ExitCode, SapoError
from sapo_client.observe.health import HealthReport
from sapo_client.observe.plain import JSON
from sapo_client.observe.starting import StartingNode, StopRequests, starting_node
from sapo_client.paths import DataDir

HOST = "127.0.0.1"  # never another: the API may stop the node
TOKEN_BYTES = 32
TIMEOUT_SECONDS = 10.0  # a healthy node answers in milliseconds; a training step may delay it
MAX_REPLY_BYTES = 16 * 1024 * 1024
_TRY_AGAIN = "try again in a moment; if that fails, restart the node (it resumes from its checkpoint)"


class NodeSilent(SapoError):
    """No node answers in a data directory.

    Attributes:
        starting: the process that holds the directory all the same; None if no process does.
    """

    def __init__(self, text: str, *, hint: str, starting: StartingNode | None) -> None:
        super().__init__(text, hint=hint, exit_code=ExitCode.NETWORK)
        self.starting = starting


@dataclass(frozen=True, slots=True)
class ControlClient:
    """Client of a running node on this machine, found through its data directory."""

    data: DataDir

    def get(self, name: str) -> JSON:
        """Return the response of `GET /name`, parsed.

        Raises:
            SapoError: no node runs here, or it refuses (exit code 5).
        """
        return self._parse(self._call("GET", name))

    def get_text(self, name: str) -> str:
        """Return the response of `GET /name` as text, for `/metrics`."""
        return self._call("GET", name).decode("utf-8", "replace")

    def stop(self, *, finish: bool) -> JSON:
        """Stop the node and return its response; `finish` lets the current round end first.

        A process whose node starts serves no control API; it is asked by a file, and ends within seconds.

        Raises:
            SapoError: no node runs or starts here, or it cannot be asked.
        """
        try:
            return self._ask_to_stop(finish)
        except NodeSilent as error:
            if error.starting is None or not error.starting.heeds_stops:
                raise
        StopRequests(self.data).ask()
        with suppress(NodeSilent):  # it may have started after its last look for the file
            return self._ask_to_stop(finish)
        return {"stopping": True, "finish": False}

    def _ask_to_stop(self, finish: bool) -> JSON:
        return self._parse(self._call("POST", "stop", json.dumps({"finish": finish})))

    def page_link(self) -> str:
        """Return the URL of a link that opens the node's page once.

        Raises:
            SapoError: no node runs here, or it has no page (exit code 5).
        """
        answer = self._parse(self._call("POST", "dashboard-link"))
        if not isinstance(answer, dict) or not isinstance(answer.get("path"), str):
            raise _no_answer("this version cannot read the node's link")
        return f"http://{HOST}:{read_port(self.data)}{answer['path']}"

    def pause(self, *, paused: bool) -> JSON:
        """Pause the node before its next round, or resume it; return its response."""
        return self._parse(self._call("POST", "pause" if paused else "resume"))

    def health(self) -> HealthReport:
        """Return whether the node is healthy, and its findings.

        Raises:
            SapoError: no node runs here, it does not answer, or it has another version (exit code 5).
        """
        try:
            return HealthReport.model_validate_json(self._call("GET", "health", accepted=(200, 503)))
        except ValidationError as error:
            raise _no_answer("this version cannot read the node's health report") from error

    def answers(self) -> bool:
        """Whether a node answers here and is not draining."""
        try:
            return self.health().state == "running"
        except SapoError as error:
            if error.exit_code != ExitCode.NETWORK:
                raise
            return False

    def _call(
        self, method: str, name: str, body: str | None = None, accepted: Collection[int] = (200,)
    ) -> bytes:
        port = read_port(self.data)
        headers = {"Authorization": f"Bearer {read_token(self.data)}"}
        try:
            with closing(http.client.HTTPConnection(HOST, port, timeout=TIMEOUT_SECONDS)) as connection:
                connection.request(method, f"/{name}", body, headers)
                response = connection.getresponse()
                content = response.read(MAX_REPLY_BYTES)
        except ConnectionRefusedError as error:
            raise _not_running(self.data) from error
        except (OSError, http.client.HTTPException) as error:
            text = f"the node in {self.data.root} does not answer: {error}"
            raise NodeSilent(text, hint=_TRY_AGAIN, starting=starting_node(self.data)) from error
        if response.status not in accepted:
            raise _no_answer(f"the node answers {response.status} {response.reason} to {method} /{name}")
        return content

    def _parse(self, content: bytes) -> JSON:
        try:
            answer: JSON = json.loads(content)
        except ValueError as error:
            raise _no_answer("the node's answer is not JSON") from error
        return answer


def read_port(data: DataDir) -> int:
    """Return the port of the running node's control API."""
    try:
        _, _, port = data.control_address.read_text().strip().rpartition(":")
        return int(port)
    except (OSError, ValueError) as error:
        raise _not_running(data) from error


def read_token(data: DataDir) -> str:
    """Return the token of the control API."""
    try:
        return data.control_token.read_text().strip()
    except OSError as error:
        raise _no_answer(f"cannot read {data.control_token}: {error.strerror}") from error


def keep_token(data: DataDir) -> str:
    """Return the token of the control API; create it, private to the user, if there is none.

    A new one is written to a temporary file and renamed: a partial one, left by a crash or a full disk, would
    be refused at every later start.
    """
    if data.control_token.exists():
        return _kept_token(data.control_token)
    token = secrets.token_hex(TOKEN_BYTES)
    writing = data.control_token.with_name(data.control_token.name + ".writing")
    writing.unlink(missing_ok=True)  # of a start that was interrupted; its mode may be another
    descriptor = os.open(writing, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(token + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    writing.replace(data.control_token)
    return token


def _kept_token(path: Path) -> str:
    token = path.read_text().strip()
    exposed = path.stat().st_mode & 0o077
    if exposed or len(token) != 2 * TOKEN_BYTES:
        raise SapoError(
            f"the control token {path} is damaged or readable by others",
            hint=f"delete it, the next start creates a new one: rm {path}",
            exit_code=ExitCode.DATA,
        )
    return token


def _not_running(data: DataDir) -> NodeSilent:
    if (starting := starting_node(data)) is not None:
        return NodeSilent(starting.error.text, hint=starting.error.hint, starting=starting)
    return NodeSilent(
        f"no node is running in {data.root}",
        hint="start one with `sapo join --identity NAME`, or name its directory with --data-dir",
        starting=None,
    )


def _no_answer(text: str) -> SapoError:
    return SapoError(
        text,
        hint=_TRY_AGAIN,
        exit_code=ExitCode.NETWORK,
    )
