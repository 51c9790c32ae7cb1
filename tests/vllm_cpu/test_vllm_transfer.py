"""A server of vLLM that the learner's weights reach through vLLM's own trainer engine."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import torch
from support.vllm_modules import changed
from vllm_cpu.store_transport import install, register

from sapo_client.errors import SapoError
from sapo_client.learner.logprobs import completion_logprobs
from sapo_client.learner.policy import load_policy
from sapo_client.learner.remote.vllm_server import VllmServerGenerator, nccl_push

PROMPTS = [(5, 6, 7), (8, 9)]
START_SECONDS = 400


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the bundled model as ``remote/vllm_server.py`` says, with the store in NCCL's place."""
    folder = tmp_path_factory.mktemp("server")
    load_policy("bundled", "cpu").save(folder / "model")
    install(folder / "plugin")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {
        "--model": str(folder / "model"),
        "--port": str(port),
        "--logprobs-mode": "processed_logprobs",
        "--weight-transfer-config": json.dumps({"backend": "nccl"}),
        "--dtype": "float32",
        "--kv-cache-memory-bytes": str(2**28),
    }
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--enforce-eager"]
    environment = {
        **os.environ,
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "PYTHONPATH": str(folder / "plugin"),
    }
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [*command, *(part for option in options.items() for part in option)],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            address = f"http://127.0.0.1:{port}"
            wait_until_served(address, server, folder / "log")
            yield address
        finally:
            server.terminate()
            server.wait(60)


def wait_until_served(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the server answers; it loads PyTorch and a model first."""
    for _ in range(START_SECONDS):
        assert server.poll() is None, log.read_text()[-4000:]
        try:
            httpx.get(f"{address}/v1/models", timeout=5).raise_for_status()
        except httpx.HTTPError:
            time.sleep(1)
        else:
            return
    raise AssertionError(log.read_text()[-4000:])


def test_a_server_samples_from_the_present_policy(url: str) -> None:
    """First all weights, then adapters merged; the head of this model is tied."""
    register()
    for policy in (load_policy("bundled", "cpu"), load_policy("bundled", "cpu").with_adapters(4)):
        push = nccl_push(replace(policy, device=torch.device("cuda")), url, workers=1)
        remote = VllmServerGenerator(policy, url, push)
        for seed in (1, 2):
            changed(policy.model, 0.05)
            groups = remote.sample(
                PROMPTS, completions_per_prompt=3, max_new_tokens=6, temperature=1.0, seed=seed
            )
            assert [len(group) for group in groups] == [3, 3]
            for prompt, group in zip(PROMPTS, groups, strict=True):
                for item in group:
                    with torch.no_grad():
                        own = completion_logprobs(policy.model, [(prompt, item.tokens)], policy.pad, 1.0)[0]
                    assert item.logprobs == pytest.approx(own.tolist(), abs=1e-3)


def test_an_update_that_was_cut_off_is_reported_until_the_server_takes_weights_again(url: str) -> None:
    """As a learner leaves it that is killed between the announcement and the weights."""
    register()
    policy = load_policy("bundled", "cpu")
    remote = VllmServerGenerator(policy, url, nccl_push(replace(policy, device=torch.device("cuda")), url, 1))
    httpx.post(f"{url}/start_weight_update", timeout=60).raise_for_status()
    with pytest.raises(SapoError, match="does not take the weights: 500") as caught:
        remote.refresh()
    assert (caught.value.transient, caught.value.finding) == (True, "server_away")
    httpx.post(f"{url}/finish_weight_update", timeout=60).raise_for_status()
    remote.refresh()


def test_a_server_that_was_sent_nothing_is_noticed(url: str) -> None:
    policy = load_policy("bundled", "cpu")
    changed(policy.model, 0.05)
    with pytest.raises(SapoError, match="did not take the new weights"):
        VllmServerGenerator(policy, url, lambda: None).refresh()
