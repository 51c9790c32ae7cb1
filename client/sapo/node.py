"""A real node, run by a Python program: the same processes, checks and files as those of `sapo join`."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

import outcome

from sapo.arguments import require_list, require_steps
from sapo.callbacks import CallbackThread
from sapo.rollouts import RolloutObserver, ScoredRollout
from sapo_client.errors import ExitCode, SapoError

if TYPE_CHECKING:
    from types import TracebackType

    import trio

    from sapo_client.config import Config
    from sapo_client.keystore import Identity
    from sapo_client.locks import Lock
    from sapo_client.node.roles import StartedNode
    from sapo_client.node.waiting import Waiting
    from sapo_client.observe.findings import HealthFinding
    from sapo_client.observe.status import RoundSummary
    from sapo_client.paths import DataDir

OnRound = TypeVar("OnRound", bound="Callable[[RoundSummary], object]")
OnWaiting = TypeVar("OnWaiting", bound="Callable[[HealthFinding], object]")
OnRollout = TypeVar("OnRollout", bound="Callable[[ScoredRollout], object]")

IDENTITY_FILE = "identity.json"


class _NotWaited(Exception):
    """The program ended the node while its start was waited for."""


class Node:
    """One node, from its start to its end; a program may run several, each in a directory of its own.

    The node has a thread and child processes of its own. Callbacks run on another thread, one at a time and
    in order, and never hold the node up. When a callback raises, the node stops, and the exception comes out
    of ``wait``, ``stop`` or the ``with`` block.

    While the model's server is away or the disk is full, the node says so on standard error, waits, and tries
    again at least once a minute: at its start, which does not return meanwhile, and later. ``on_waiting`` and
    `sapo status` say it too; ``stop`` ends it.

    Args:
        data_dir: its directory: identity, databases, checkpoints, events. The next start resumes there.
        alone: train without a swarm and without a chain, on tasks that fit the model; then no argument that
            concerns a swarm may be given.
        manifest: file of the swarm to join; needed once per directory.
        identity: file or name of its keys, as in `sapo join --identity`; None for ``identity.json`` in the
            directory, which is created without a passphrase.
        passphrase_file: opens the identity; without one, it is asked for at the terminal.
        bootstrap: multiaddrs of nodes to connect to first, such as another node's ``addresses``.
        listen: multiaddrs to listen on; None for any free port of every interface.
        rpc_urls: endpoints of the swarm's chain, if it has one.
        model: `bundled`, a Hugging Face model, or a folder that holds one; None for the setting's default.
        steps: stop by itself after this many steps; None to train until it is stopped.
        fresh: start with ``model`` although checkpoints exist; these are kept.
        waits: whether it waits so; otherwise it raises.
        settings: any others by their dotted names, such as ``{"learner.temperature": 0.8}``; see
            docs/reference/configuration.md. Neither the user's file nor environment variables are read.

    Raises:
        SapoError: an argument, a setting, the identity or the manifest is missing or refused; ``hint`` says
            what to do.
    """

    def __init__(
        self,
        data_dir: str | Path,
        *,
        alone: bool = False,
        manifest: str | Path | None = None,
        identity: str | Path | None = None,
        passphrase_file: str | Path | None = None,
        bootstrap: Sequence[str] = (),
        listen: Sequence[str] | None = None,
        rpc_urls: Sequence[str] = (),
        model: str | Path | None = None,
        steps: int | None = None,
        fresh: bool = False,
        waits: bool = True,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        if alone:
            _require_no_swarm(manifest=manifest, bootstrap=bootstrap, listen=listen, rpc_urls=rpc_urls)
        own = Path(data_dir) / IDENTITY_FILE
        self._config = _resolve(
            {
                "data_dir": str(data_dir),
                "identity": str(identity or own),
                "passphrase_file": _text(passphrase_file),
                "swarm.alone": alone or None,
                "swarm.manifest": _text(manifest),
                "swarm.bootstrap": require_list("bootstrap", bootstrap) or None,
                "swarm.listen": require_list("listen", listen),
                # keys that lie in the directory are used by one process at a time: the directory has a lock
                "swarm.listen_before_signing_seconds": 0.0 if alone or identity is None else None,
                "ledger.rpc_urls": require_list("rpc_urls", rpc_urls) or None,
                "learner.model": _text(model),
                **(settings or {}),
            }
        )
        self._steps = require_steps(steps)
        self._identity = _open_identity(self._config, create=identity is None)
        self._fresh = fresh
        self._waits = waits
        self._on_waiting: list[Callable[[HealthFinding], object]] = []
        self._on_round: list[Callable[[RoundSummary], object]] = []
        self._on_external: list[Callable[[ScoredRollout], object]] = []
        self._on_reward: list[Callable[[ScoredRollout], object]] = []
        self._listeners: list[SimpleQueue[RoundSummary | None]] = []
        self._callbacks = CallbackThread(self.request_stop)
        self._thread = threading.Thread(target=self._run, name="sapo-node", daemon=True)
        self._result: outcome.Outcome[int] | None = None
        self._settled = threading.Event()  # it has started, or it has ended
        self._stop_wanted = threading.Event()
        self._app: StartedNode | None = None
        self._token: trio.lowlevel.TrioToken | None = None

    # What it tells

    def on_round(self, function: OnRound) -> OnRound:
        """Call a function with the summary of every round: step, rewards, pool, seconds; return the function.

        It may be used as a decorator, and more than one function may be registered.
        """
        self._on_round.append(function)
        return function

    def on_waiting(self, function: OnWaiting) -> OnWaiting:
        """Call a function with what the node waits for, after each try to start; return the function.

        It takes a finding: ``code`` (``server_away``, ``disk_full`` or ``limit_reached``), ``text`` and
        ``hint``, in words.
        """
        self._on_waiting.append(function)
        return function

    def on_external(self, function: OnRollout) -> OnRollout:
        """Call a function with every rollout of another account that this node scored; return the function.

        These are the rollouts that passed all checks up to the score. Which of them are used in training is
        the sampler's decision.
        """
        self._on_external.append(function)
        return function

    def on_reward(self, function: OnRollout) -> OnRollout:
        """Call a function with every own rollout and the rewards of its answers; return the function.

        It sees the rewards and cannot change them: every other node derives the same ones from the answers.
        """
        self._on_reward.append(function)
        return function

    def rounds(self) -> Iterator[RoundSummary]:
        """Yield the summary of every round from now on, until the node has ended; start it if necessary.

        Leaving the loop does not stop the node.

        Raises:
            SapoError: the node could not start or go on.
        """
        listener: SimpleQueue[RoundSummary | None] = SimpleQueue()
        self._listeners.append(listener)
        if not self.is_started:
            self.start()
        elif not self.is_running:
            listener.put(None)
        try:
            while (summary := listener.get()) is not None:
                yield summary
            self.wait()
        finally:
            self._listeners.remove(listener)

    @property
    def missed(self) -> int:
        """Calls of callbacks that were dropped, because more than 10,000 were waiting."""
        return self._callbacks.missed

    # What it is

    @property
    def data_dir(self) -> Path:
        """Its directory."""
        return self._config.data_dir

    @property
    def node_id(self) -> str:
        """The hex id of its key."""
        return self._identity.node_id.hex()

    @property
    def account(self) -> str:
        """The account that is credited, as 0x and 40 hex digits."""
        return str(self._identity.account)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Multiaddrs at which others reach it, for their ``bootstrap``; none before it has started."""
        return self._app.addresses if self._app else ()

    @property
    def step(self) -> int:
        """The last step of its policy; 0 before it has started."""
        return self._app.step if self._app else 0

    @property
    def is_started(self) -> bool:
        """Whether it was started, even if it has ended since."""
        return self._thread.ident is not None

    @property
    def is_running(self) -> bool:
        """Whether it runs."""
        return self._thread.is_alive()

    def status(self) -> dict[str, Any]:
        """Return what `sapo status --json` prints for the running node.

        Raises:
            SapoError: it does not run, or does not answer.
        """
        from sapo_client.observe.control_client import ControlClient
        from sapo_client.paths import DataDir

        report = ControlClient(DataDir(self.data_dir)).get("status")
        assert isinstance(report, dict)
        return report

    # From start to end

    def start(self) -> Node:
        """Start it, and return it once it is connected and serves its reports.

        Raises:
            SapoError: it cannot start and does not wait for what it lacks, or was started before.
        """
        if self.is_started:
            raise SapoError(
                "this node was started before",
                hint="make another sapo.Node with the same directory: it resumes from the last checkpoint",
                exit_code=ExitCode.USAGE,
            )
        self._callbacks.start()
        self._thread.start()
        atexit.register(self._end_with_program)
        self._settled.wait()
        if self._app is None:
            self.wait()
        return self

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether it has ended, once it has or the time in seconds is over.

        Raises:
            SapoError: it could not start or go on.
            Exception: what a callback raised.
        """
        self._thread.join(timeout)
        if self.is_running:
            return False
        self._callbacks.raise_failure()
        if self._result is not None:
            result, self._result = self._result, None
            result.unwrap()
        return True

    def request_stop(self, *, finish: bool = True) -> None:
        """Let it end after the current round and a checkpoint, or at once; return immediately."""
        self._stop_wanted.set()
        if self._app is not None and self._token is not None and self.is_running:
            import trio

            try:
                self._token.run_sync_soon(partial(self._app.request_stop, finish=finish))
            except trio.RunFinishedError:
                return  # it ended meanwhile

    def stop(self, *, finish: bool = True) -> None:
        """End it after the current round and a checkpoint, or at once; return when it has ended.

        Called by a callback, it returns at once.

        Raises:
            SapoError: it could not go on.
            Exception: what a callback raised.
        """
        self.request_stop(finish=finish)
        if self.is_started and not self._callbacks.is_current:
            self.wait()

    def __enter__(self) -> Node:
        """Start it, unless it was."""
        return self if self.is_started else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it; its own error is raised unless the block raised one."""
        if error is None:
            self.stop()
        else:
            self.request_stop()
            self._thread.join()

    def _end_with_program(self) -> None:
        self.request_stop()
        self._thread.join()

    # On its own threads

    def _run(self) -> None:
        self._result = outcome.capture(self._run_node)
        self._settled.set()
        self._callbacks.close()
        atexit.unregister(self._end_with_program)
        for listener in list(self._listeners):
            listener.put(None)

    def _run_node(self) -> int:
        from sapo_client.locks import Lock
        from sapo_client.node.waiting import Waiting
        from sapo_client.observe.starting import StopRequested, StopRequests
        from sapo_client.paths import DataDir

        lock = Lock.of_directory(DataDir(self.data_dir))
        if not self._waits:
            return self._prepared(lock, None)()
        waiting = Waiting(
            lock,
            stops=StopRequests(DataDir(self.data_dir)),
            told=partial(self._tell, self._on_waiting),
            sleep=self._sleep,
            end="stopping it ends the waiting",
        )
        try:
            return waiting.through(waiting.through(partial(self._prepared, lock, waiting)))
        except (_NotWaited, StopRequested):
            return int(ExitCode.DONE)

    def _sleep(self, seconds: float) -> None:
        if self._stop_wanted.wait(seconds):
            raise _NotWaited

    def _prepared(self, lock: Lock, waiting: Waiting | None) -> Callable[[], int]:
        """Return the run of the node, once it can start in its directory."""
        from sapo_client.full_disk import told_of_full_disk
        from sapo_client.node.app import RunOptions
        from sapo_client.node.bootstrap import NextRun, require_joinable, run_node
        from sapo_client.node.roles import Roles
        from sapo_client.node.runtime.manifests import require_manifest
        from sapo_client.paths import DataDir

        config = self._config
        data = DataDir(config.data_dir).create()
        if config.swarm.alone:
            with told_of_full_disk(data.root):
                _settle_alone(config, data)
            chosen = None
        else:
            require_joinable(config)
            chosen = config.swarm.manifest
        observer = RolloutObserver(
            lambda: require_manifest(chosen, data).suite,
            self.account,
            on_own=partial(self._tell, self._on_reward),
            on_external=partial(self._tell, self._on_external),
        )
        roles = Roles(observers=(observer,), started=self._note_started)
        return partial(
            run_node,
            config,
            self._identity,
            NextRun(RunOptions(fresh=self._fresh, steps=self._steps)),
            self._note_round,
            roles=roles if waiting is None else waiting.roles(roles),
            lock=lock,
        )

    def _note_started(self, app: StartedNode) -> None:
        import trio

        self._token = trio.lowlevel.current_trio_token()
        self._app = app
        if self._stop_wanted.is_set():
            app.request_stop()
        self._settled.set()

    def _note_round(self, summary: RoundSummary) -> None:
        self._tell(self._on_round, summary)
        for listener in self._listeners:
            listener.put(summary)

    def _tell(self, functions: list[Callable[[Any], object]], value: object) -> None:
        for function in functions:
            self._callbacks.put(function, value)


def _text(value: str | Path | None) -> str | None:
    return None if value is None else str(value)


def _require_no_swarm(**arguments: object) -> None:
    from sapo_client.config_layers import require_no_swarm

    require_no_swarm(arguments, alone="alone=True")


def _resolve(flags: Mapping[str, object]) -> Config:
    from sapo_client.config_layers import resolve

    return resolve(flags, environment={}, user_file=False).config


def _open_identity(config: Config, *, create: bool) -> Identity:
    from sapo_client import keystore
    from sapo_client.full_disk import told_of_full_disk
    from sapo_client.passphrase import PassphraseSource
    from sapo_client.paths import DataDir

    path = keystore.locate(str(config.identity))
    if create and not path.exists():
        data = DataDir(config.data_dir).create()
        with told_of_full_disk(data.root):
            return keystore.create(path, None)
    return keystore.load(path, PassphraseSource(config.passphrase_file))


def _settle_alone(config: Config, data: DataDir) -> None:
    from sapo_client.founding.alone import alone_manifest
    from sapo_client.node.runtime.manifests import ALONE, settle_alone

    settle_alone(data, partial(alone_manifest, ALONE, config.learner))
