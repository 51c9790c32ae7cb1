"""The backend of a node's web page: JSON views of its running parts, and the actions of its buttons."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Protocol

import trio

from sapo_client.config_layers import Setting
from sapo_client.dashboard.claim import ClaimDesk
from sapo_client.dashboard.curves import curves_document
from sapo_client.dashboard.history import FinalEpoch
from sapo_client.dashboard.pages import event
from sapo_client.dashboard.recorder import Decision
from sapo_client.dashboard.rollouts import SeenRollout
from sapo_client.logs import without_secrets
from sapo_client.node.runtime.context import NodeContext
from sapo_client.observe.health import is_healthy
from sapo_client.observe.plain import JSON, to_json
from sapo_client.observe.reports import PeersReport, StatusReport
from sapo_client.observe.web import WebRequest
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import ContentId
from sapo_verification.engine import Engine
from sapo_verification.reputation.account_list import ORDERS, ListedAccount, list_accounts

SELF: Final = "self"
TICK_SECONDS: Final = 1.0
STATUS_TICKS: Final = 4
"""Ticks between two status reports in the stream."""

MAX_IN_A_TICK: Final = 12
"""Decisions sent in one tick: more lines than a person can read, and each has a cost."""

MAX_EPOCHS: Final = 30
MAX_ROWS: Final = 200
MAX_LOG_BYTES: Final = 256 * 1024

View = Callable[[WebRequest], "JSON | None"]


class NodeReports(Protocol):
    """The parts of a running node that the page reads."""

    @property
    def context(self) -> NodeContext:
        """Its identity, configuration and telemetry."""
        ...

    @property
    def engine(self) -> Engine:
        """Its engine."""
        ...

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Every setting with its origin."""
        ...

    def epoch(self) -> int:
        """Return the current epoch."""
        ...

    def status(self) -> StatusReport:
        """Return the state of the node."""
        ...

    def peers(self) -> PeersReport:
        """Return the connected peers with their scores and reputation."""
        ...


@dataclass(frozen=True, slots=True)
class NodePage:
    """The page of one running node."""

    reports: NodeReports
    desk: ClaimDesk
    points: dict[int, int | None] = field(default_factory=dict)

    def nodes(self) -> JSON:
        """Return this one node."""
        context = self.reports.context
        return {
            "title": context.manifest.name,
            "nodes": [{"name": SELF, "role": "node", "title": context.author.node.hex()[:12]}],
            "marks": [],
        }

    async def view(self, node: str, name: str, request: WebRequest) -> JSON | None:
        """Return a view; None if there is no such node or view."""
        quick: Mapping[str, View] = {
            "status": lambda _: self.status(),
            "peers": lambda _: {**self.reports.peers().model_dump(mode="json"), "alone": self._alone},
            "rollouts": self._rollouts,
            "rollout": self._rollout,
            "ledger": lambda _: self._ledger(),
            "refusals": self._refusals,
            "config": lambda _: self._config(),
        }
        slow: Mapping[str, View] = {
            "curves": self._curves,
            "accounts": self._accounts,
            "log": self._log,
            "claim": lambda _: self.desk.preview(),
        }
        if node != SELF:
            return None
        if name in slow:  # these read the disk
            return await trio.to_thread.run_sync(slow[name], request)
        return quick[name](request) if name in quick else None

    def stream(self, node: str, request: WebRequest) -> AsyncIterator[bytes] | None:
        """Return the stream of live events; None if there is no such node."""
        return self._events(request) if node == SELF else None

    async def order(self, node: str, name: str, body: bytes) -> JSON | None:
        """Carry out an action of the page's buttons; the only one is to claim points.

        Raises:
            SapoError: it failed.
        """
        if (node, name) != (SELF, "claim"):
            return None
        return await trio.to_thread.run_sync(self.desk.confirm, body)

    @property
    def _alone(self) -> bool:
        return self.reports.context.config.swarm.alone

    def status(self) -> JSON:
        """Return the status report, with the health as one word."""
        report = self.reports.status()
        return {**report.model_dump(mode="json"), "healthy": is_healthy(report.findings)}

    async def _events(self, request: WebRequest) -> AsyncIterator[bytes]:
        recorder = self.reports.context.telemetry.recorder
        last, tick = request.last_event(), 0
        number = max(0, recorder.last - MAX_IN_A_TICK) if last is None else last
        while True:
            if tick % STATUS_TICKS == 0:
                yield event("status", self.status())
            news = list(recorder.since(number))
            if news:
                number = news[-1].number
                shown = news[-MAX_IN_A_TICK:]
                document: JSON = {
                    "decisions": [_decision(each) for each in shown],
                    "left_out": len(news) - len(shown),
                }
                yield event("decisions", document, number)
            tick += 1
            await trio.sleep(TICK_SECONDS)

    def _curves(self, request: WebRequest) -> JSON:
        return to_json(curves_document(self.reports.context.telemetry.recorder.history, request))

    def _accounts(self, request: WebRequest) -> JSON:
        order = request.argument("order", "audits")
        book = list_accounts(
            self.reports.context.data.database,
            self.reports.epoch(),
            order=order if order in ORDERS else "audits",
            find=request.argument("find"),
            offset=request.number("offset", 0, maximum=10**9),
            limit=request.number("limit", 50, maximum=MAX_ROWS),
        )
        return {"total": book.total, "accounts": [self._account(entry) for entry in book.entries]}

    def _account(self, entry: ListedAccount) -> JSON:
        account, evidence = str(entry.account), entry.evidence
        banned = entry.banned_until is not None and self.reports.epoch() < entry.banned_until
        return {
            "account": account,
            "reputation": evidence.weight,
            "audits": evidence.audits,
            "passed": evidence.passed,
            "good": evidence.good,
            "bad": evidence.bad,
            "banned_until": entry.banned_until if banned else None,
            "verdicts": to_json(self.reports.context.telemetry.recorder.verdicts_of(account)),
        }

    def _rollouts(self, request: WebRequest) -> JSON:
        offset = request.number("offset", 0, maximum=10**6)
        limit = request.number("limit", 50, maximum=MAX_ROWS)
        wanted = request.argument("show")
        rollouts = self.reports.context.telemetry.recorder.rollouts
        found = [(id_, seen) for id_, seen in rollouts.newest() if _matches(seen, wanted)]
        page = found[offset : offset + limit]
        return {"total": len(found), "rollouts": [self._row(id_, seen) for id_, seen in page]}

    def _refusals(self, request: WebRequest) -> JSON:
        offset = request.number("offset", 0, maximum=10**6)
        limit = request.number("limit", 50, maximum=MAX_ROWS)
        refusals = self.reports.context.telemetry.recorder.refusals
        found = list(refusals.newest())
        shown: list[JSON] = [
            {**asdict(each), "stages": to_json(each.stages())} for each in found[offset : offset + limit]
        ]
        return {"total": len(found), "messages": shown, "forwarders": to_json(refusals.by_forwarder())}

    def _row(self, content_id: ContentId, seen: SeenRollout) -> dict[str, JSON]:
        rollout = seen.rollout
        rewards = seen.rewards
        return {
            "content_id": content_id.hex(),
            "account": str(rollout.account),
            "node": rollout.node.hex(),
            "own": seen.own,
            "at": seen.at,
            "epoch": rollout.epoch,
            "slot": rollout.slot,
            "family": self.reports.context.manifest.suite.families[rollout.family].name,
            "level": self.reports.context.manifest.suite.families[rollout.family].level,
            "completions": len(rollout.completions),
            "reward": None if rewards is None else sum(rewards) / len(rewards),
            "state": seen.state,
        }

    def _rollout(self, request: WebRequest) -> JSON | None:
        try:
            content_id = ContentId.from_hex(request.argument("id"))
        except LocalProtocolError:
            return None
        seen = self.reports.context.telemetry.recorder.rollouts.get(content_id)
        if seen is None:
            return None
        rewards: Sequence[float | None] = seen.rewards or [None] * len(seen.rollout.completions)
        evidence = self.reports.engine.reputation.evidence(seen.rollout.account, self.reports.epoch())
        return {
            **self._row(content_id, seen),
            "forwarder": seen.forwarder,
            "prompt": seen.prompt,
            "answers": [
                {"text": text.decode("utf-8", "replace"), "reward": reward}
                for text, reward in zip(seen.rollout.completions, rewards, strict=True)
            ],
            "stages": to_json(seen.stages()),
            "uses": to_json(seen.uses),
            "reputation": None if seen.own else evidence.weight,
            "audits": None if seen.own else evidence.audits,
            "passed": None if seen.own else evidence.passed,
            "strategy": self.reports.context.config.sampler.strategy,
            "text_use": self.reports.context.config.sampler.text_use,
            "alone": self._alone,
            "is_newcomer": not seen.own and self.reports.engine.reputation.is_newcomer(seen.rollout.account),
        }

    def _ledger(self) -> JSON:
        reports = self.reports
        history = reports.context.telemetry.recorder.history
        return {
            "ledger": reports.status().ledger.model_dump(mode="json"),
            "account": str(reports.context.author.account),
            "epochs": [self._epoch(epoch) for epoch in history.epochs(MAX_EPOCHS)],
        }

    def _epoch(self, final: FinalEpoch) -> JSON:
        """Return a final epoch with this account's points in it; None for the points if its proposal is
        missing."""
        if final.epoch not in self.points:
            self.points[final.epoch] = self._points(final)
        points = self.points[final.epoch]
        return {
            "epoch": final.epoch,
            "at": final.at,
            "total": final.total,
            "root": final.root,
            "points": points,
        }

    def _points(self, final: FinalEpoch) -> int | None:
        account = self.reports.context.author.account
        for content_id, proposal in self.reports.engine.contributions.proposals(final.epoch).items():
            if proposal.root(content_id).contribution_root.hex() == final.root:
                return next((share.points for share in proposal.shares if share.account == account), 0)
        return None

    def _log(self, request: WebRequest) -> JSON:
        path = self.reports.context.data.log
        try:
            with path.open("rb") as stream:
                stream.seek(max(0, path.stat().st_size - MAX_LOG_BYTES))
                text = stream.read(MAX_LOG_BYTES).decode("utf-8", "replace")
        except OSError:
            text = ""
        lines = text.splitlines()[-request.number("lines", 300, maximum=2000) :]
        return {"path": str(path), "lines": to_json(lines)}

    def _config(self) -> JSON:
        shown = [replace(each, value=_without_secrets(each.value)) for each in self.reports.settings]
        return {"settings": to_json(shown)}


def _matches(seen: SeenRollout, wanted: str) -> bool:
    match wanted:
        case "own":
            return seen.own
        case "others":
            return not seen.own
        case "used":
            return bool(seen.uses) and not seen.own
        case "refused":
            return seen.broken is not None
    return True


def _without_secrets(value: Any) -> Any:
    """Return a setting's value, with URLs stripped of parts that may be a password or an API key."""
    if isinstance(value, str):
        return without_secrets(value)
    return [_without_secrets(each) for each in value] if isinstance(value, list) else value


def _decision(decision: Decision) -> JSON:
    return {"number": decision.number, "event": decision.event, **decision.fields}
