"""A small server of the Tinker API that really trains and samples, as the client of the API expects it.

It serves the endpoints that version 0.38 of the client uses: JSON requests whose results are fetched by
number, and protocol buffers for forward passes and samples. A model is a folder of transformers; all of its
weights are trained, whatever rank of adapters the client asks for.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from support.local_api import JSON, ApiHandler, serving
from tinker.proto import tinker_public_pb2 as proto
from transformers import AutoModelForCausalLM

KEY = "tml-test"
PROTOBUF = "application/x-protobuf"


class TrainedModel:
    """One model of a session, with its optimizer and the number of its last request."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), weight_decay=0.0)
        self.last_request = 0

    def logprobs(self, tokens: list[int], targets: list[int]) -> torch.Tensor:
        """Return the log-probability of each target at its position."""
        logits = self.model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
        found: torch.Tensor = logits.log_softmax(-1).gather(1, torch.tensor(targets)[:, None])[:, 0]
        return found


class TinkerApi:
    """State of the server.

    Attributes:
        calls: names of the requests so far, without polling.
        fails: names of requests that are refused from now on.
        failing: status code of every reply; None: it works. The client itself waits minutes for most of them.
        falsify: changes the sequences of a reply, as a faulty server would.
        falsify_rows: likewise the log-probabilities of a forward pass.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails: set[str] = set()
        self.failing: int | None = None
        self.falsify: Callable[[list[Any]], object] = lambda sequences: None
        self.falsify_rows: Callable[[list[Any]], object] = lambda rows: None
        self._lock = threading.Lock()
        self._models: dict[str, TrainedModel] = {}
        self._saved: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {}
        self._samplers: dict[str, TrainedModel] = {}
        self._results: dict[str, dict[str, Any] | bytes] = {}

    def answer(self, name: str, request: dict[str, Any]) -> tuple[int, dict[str, Any] | bytes]:
        """Return status and body of a request whose body was JSON."""
        with self._lock:
            if name == "retrieve_future":
                return 200, self._results[request["request_id"]]
            self.calls.append(name)
            if name in self.fails:
                return 400, {"detail": f"{name} is refused"}
            if name in ("client/config", "client/dynamic_config", "telemetry", "session_heartbeat"):
                return 200, {}
            if name == "create_session":
                return 200, {"type": "create_session", "session_id": "session"}
            if name == "get_info":
                trained = self._models[request["model_id"]]
                data = {"model_name": trained.folder, "tokenizer_id": trained.folder}
                return 200, {"type": "get_info", "model_id": request["model_id"], "model_data": data}
            return 200, getattr(self, f"_{name}")(request)

    def forward_backward(self, body: bytes) -> tuple[int, dict[str, Any]]:
        """Return the future of log-probabilities; add gradients unless it is forward only."""
        request = proto.ForwardBackwardRequest()
        request.ParseFromString(body)
        with self._lock:
            self.calls.append("forward" if request.forward_only else "forward_backward")
            trained = self._in_turn(request.model_id, request.seq_id)
            assert request.loss_fn == "cross_entropy"
            logprobs, loss = [], torch.zeros(())
            for datum in request.data:
                chunks = [np.frombuffer(each.encoded_text.tokens, np.int32) for each in datum.model_input]
                targets = np.frombuffer(datum.loss_fn_inputs["target_tokens"].dense, np.int64)
                weights = np.frombuffer(datum.loss_fn_inputs["weights"].dense, np.float32)
                found = trained.logprobs(np.concatenate(chunks).tolist(), targets.tolist())
                loss = loss - (found * torch.tensor(weights)).sum()
                logprobs.append(found.detach().numpy())
            self.falsify_rows(logprobs)
            if not request.forward_only:
                loss.backward()  # type: ignore[no-untyped-call]
            return 200, self._promised(_forward_output(logprobs, float(loss.detach())))

    def _create_model(self, request: dict[str, Any]) -> dict[str, Any]:
        model_id = f"{request['session_id']}:train:{request['model_seq_id']}"
        self._models[model_id] = TrainedModel(request["base_model"])
        return self._promised({"type": "create_model", "model_id": model_id})

    def _optim_step(self, request: dict[str, Any]) -> dict[str, Any]:
        trained = self._in_turn(request["model_id"], request["seq_id"])
        wanted = request["adam_params"]
        for group in trained.optimizer.param_groups:
            group["lr"], group["eps"] = wanted["learning_rate"], wanted["eps"]
            group["betas"] = (wanted["beta1"], wanted["beta2"])
        torch.nn.utils.clip_grad_norm_(trained.model.parameters(), wanted["grad_clip_norm"])
        trained.optimizer.step()
        trained.optimizer.zero_grad()
        return self._promised({"metrics": {}})

    def _save_weights(self, request: dict[str, Any]) -> dict[str, Any]:
        trained = self._in_turn(request["model_id"], request["seq_id"])
        path = f"tinker://{request['model_id']}/weights/{request['path']}"
        weights, optimizer = trained.model.state_dict(), trained.optimizer.state_dict()
        self._saved[path] = (trained.folder, copy.deepcopy(weights), copy.deepcopy(optimizer))
        return self._promised({"type": "save_weights", "path": path})

    def _load_weights(self, request: dict[str, Any]) -> dict[str, Any]:
        model_id = f"{request['session_id']}:train:{request['model_seq_id']}"
        folder, weights, optimizer = self._saved[request["path"]]
        trained = self._models[model_id] = TrainedModel(folder)
        trained.model.load_state_dict(weights)
        if request["optimizer"]:
            trained.optimizer.load_state_dict(copy.deepcopy(optimizer))
        return self._promised({"type": "load_weights", "path": request["path"], "model_id": model_id})

    def _save_weights_for_sampler(self, request: dict[str, Any]) -> dict[str, Any]:
        trained = self._in_turn(request["model_id"], request["seq_id"])
        sampler = f"{request['model_id']}:sample:{request['sampling_session_seq_id']}"
        self._samplers[sampler] = copy.deepcopy(trained)
        return self._promised({"type": "save_weights_for_sampler", "sampling_session_id": sampler})

    def _asample(self, request: dict[str, Any]) -> dict[str, Any]:
        trained, wanted = self._samplers[request["sampling_session_id"]], request["sampling_params"]
        prompt = [token for chunk in request["prompt"]["chunks"] for token in chunk["tokens"]]
        source = torch.Generator().manual_seed(wanted["seed"])
        sequences = [_sampled(trained.model, prompt, wanted, source) for _ in range(request["num_samples"])]
        self.falsify(sequences)
        ids = [f"{request['seq_id']}-{index}" for index in range(len(sequences))]
        return self._promised(proto.SampleResponse(sequences=sequences).SerializeToString()) | {
            "sample_sequence_ids": ids
        }

    def _in_turn(self, model_id: str, number: int) -> TrainedModel:
        """Return a model whose requests must come in the order of their numbers."""
        trained = self._models[model_id]
        assert number == trained.last_request + 1
        trained.last_request = number
        return trained

    def _promised(self, result: dict[str, Any] | bytes) -> dict[str, Any]:
        number = f"request-{len(self._results)}"
        self._results[number] = result
        return {"request_id": number}


def _forward_output(logprobs: list[np.ndarray[Any, Any]], loss: float) -> bytes:
    sizes = np.cumsum([0, *(4 * len(each) for each in logprobs)], dtype=np.int64)
    values = proto.BatchedTensor(
        data=np.concatenate(logprobs).astype(np.float32).tobytes(),
        offsets=sizes.tobytes(),
        dtype=proto.DTYPE_FLOAT32,
    )
    record = proto.ArrayRecord(fields={"logprobs": values}, num_datums=len(logprobs))
    output = proto.ForwardBackwardOutput(
        loss_fn_output_type="TorchLossReturn", loss_fn_outputs=[record], metrics={"loss:sum": loss}
    )
    return bytes(output.SerializeToString())


@torch.no_grad()
def _sampled(
    model: Any, prompt: list[int], wanted: dict[str, Any], source: torch.Generator
) -> proto.SampledSequence:
    tokens: list[int] = []
    logprobs: list[float] = []
    while len(tokens) < wanted["max_tokens"] and not set(tokens) & set(wanted["stop"]):
        logits = model(input_ids=torch.tensor([[*prompt, *tokens]]), use_cache=False).logits[0, -1]
        greedy = wanted["temperature"] == 0
        scores = (logits if greedy else logits / wanted["temperature"]).log_softmax(-1)
        token = int(scores.argmax() if greedy else torch.multinomial(scores.exp(), 1, generator=source))
        tokens.append(token)
        logprobs.append(float(scores[token]))
    stopped = bool(set(tokens) & set(wanted["stop"]))
    return proto.SampledSequence(
        stop_reason=proto.STOP_REASON_STOP if stopped else proto.STOP_REASON_LENGTH,
        tokens=np.array(tokens, dtype=np.int32).tobytes(),
        logprobs=np.array(logprobs, dtype=np.float32).tobytes(),
    )


@contextmanager
def tinker_api() -> Iterator[tuple[str, TinkerApi]]:
    """Run a server on the loopback interface; yield its URL and its state."""
    api = TinkerApi()

    class Handler(ApiHandler):
        def do_POST(self) -> None:
            body = self.body()
            name = self.path.removeprefix("/api/v1/")
            if api.failing is not None:
                self._reply(api.failing, {"detail": "not now"})
            elif self.headers.get("X-API-Key") != KEY:
                self._reply(401, {"detail": "no such key"})
            elif self.headers.get("Content-Type") == PROTOBUF:
                self._reply(*api.forward_backward(body))
            else:
                self._reply(*api.answer(name, json.loads(body)))

        def _reply(self, status: int, result: dict[str, Any] | bytes) -> None:
            self.reply(status, result, PROTOBUF if isinstance(result, bytes) else JSON)

    with serving(Handler) as url:
        yield url, api
