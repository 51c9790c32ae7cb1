"""OpenAI-compatible server as a contributor; the server is real and serves the bundled policy."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.completions_server import CompletionsServer

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.contributors.endpoint import (
    MAX_REPLY_BYTES,
    CompletionsEndpoint,
    EndpointSettings,
    EndpointUnavailable,
)
from sapo_client.learner.contributors.no_train import Contributor

PROMPT = "Sunday -4\n"


@pytest.fixture(scope="module")
def server() -> CompletionsServer:
    return CompletionsServer(key="open sesame")


@pytest.fixture
def settings(server: CompletionsServer) -> Iterator[EndpointSettings]:
    server.requests.clear()
    server.max_choices, server.misbehave = 128, None
    with server.serving() as url:
        yield EndpointSettings(url, "bundled", "open sesame", temperature=1.0, max_new_tokens=6)


async def test_a_group_is_sampled_with_one_request(
    server: CompletionsServer, settings: EndpointSettings
) -> None:
    answers = await CompletionsEndpoint(settings).answer(PROMPT, 8)
    assert len(answers) == 8
    assert b"Wednesday" in answers, "the bundled policy can compute weekdays"
    assert server.requests == [
        {
            "model": "bundled",
            "messages": [{"role": "user", "content": PROMPT}],
            "n": 8,
            "temperature": 1.0,
            "max_tokens": 6,
        }
    ]


async def test_missing_completions_are_requested_again(
    server: CompletionsServer, settings: EndpointSettings
) -> None:
    server.max_choices = 3
    assert len(await CompletionsEndpoint(settings).answer(PROMPT, 8)) == 8
    assert [request["n"] for request in server.requests] == [8, 5, 2]


async def test_a_contributor_answers_and_cannot_be_exported(
    settings: EndpointSettings, tmp_path: Path
) -> None:
    contributor = Contributor(CompletionsEndpoint(settings))
    groups = await contributor.generate([PROMPT, "Monday +1\n"], completions_per_prompt=4)
    assert [(group.handle, len(group.completions)) for group in groups] == [(0, 4), (1, 4)]
    assert len(await contributor.evaluate([PROMPT])) == 1
    with pytest.raises(SapoError, match="no model of its own to export"):
        await contributor.export(tmp_path)


@pytest.mark.parametrize(
    ("status", "body", "unavailable"),
    [
        (500, b"oops", True),
        (429, b"later", True),
        (400, b"no such model", False),
        (200, b"<html>", False),
        (200, b'{"choices": []}', False),
        (200, b"[" * (MAX_REPLY_BYTES + 1), True),
    ],
)
async def test_errors_of_a_server(
    server: CompletionsServer, settings: EndpointSettings, status: int, body: bytes, unavailable: bool
) -> None:
    """The node waits while the server has an error of its own, and ends if its user must correct one."""
    server.misbehave = (status, body)
    with pytest.raises(SapoError) as caught:
        await CompletionsEndpoint(settings).answer(PROMPT, 2)
    assert isinstance(caught.value, EndpointUnavailable) == unavailable == caught.value.transient
    assert caught.value.finding == ("server_away" if unavailable else None)
    assert caught.value.hint


async def test_a_wrong_key_and_a_wrong_address_are_reported(settings: EndpointSettings) -> None:
    with pytest.raises(SapoError, match="401") as caught:
        await CompletionsEndpoint(replace(settings, key=None)).answer(PROMPT, 2)
    assert (caught.value.exit_code, caught.value.transient) == (ExitCode.CONFIG, False)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        with pytest.raises(EndpointUnavailable, match="does not answer") as caught:
            await CompletionsEndpoint(replace(settings, url=nowhere)).answer(PROMPT, 2)
    assert caught.value.exit_code == ExitCode.NETWORK
