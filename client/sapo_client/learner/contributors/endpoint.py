"""Answers of any server that speaks OpenAI's chat completions (vLLM, llama.cpp, Ollama, a paid one)."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, Field, ValidationError

from sapo_client.errors import ExitCode, SapoError

if TYPE_CHECKING:
    import httpx

TIMEOUT_SECONDS: Final = 120.0
MAX_REPLY_BYTES: Final = 4 * 2**20
"""Sixteen completions of any length that the swarm takes fit into a fraction of it."""

_CLIENT_FAULTS: Final = range(HTTPStatus.BAD_REQUEST, HTTPStatus.INTERNAL_SERVER_ERROR)


class EndpointAway(SapoError):
    """The server does not answer now; the node waits and asks again."""

    transient = True


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """Whom to ask, and for what.

    Attributes:
        url: up to and with the version, as in ``http://127.0.0.1:8000/v1``.
        model: the server's name of the model.
        key: sent as a bearer token; None for none.
    """

    url: str
    model: str
    key: str | None
    temperature: float
    max_new_tokens: int


class _Message(BaseModel):
    content: str | None = None


class _Choice(BaseModel):
    message: _Message


class _Reply(BaseModel):
    choices: list[_Choice] = Field(min_length=1)


class CompletionsEndpoint:
    """One server as an answerer."""

    def __init__(self, settings: EndpointSettings) -> None:
        import httpx

        self._settings = settings
        headers = {} if settings.key is None else {"Authorization": f"Bearer {settings.key}"}
        self._client = httpx.AsyncClient(headers=headers, timeout=TIMEOUT_SECONDS)

    async def answer(self, prompt: str, count: int) -> tuple[bytes, ...]:
        """Sampled completions; a server that gives fewer at once than it was asked for is asked again.

        Raises:
            EndpointAway: no answer, or a fault of the server's.
            SapoError: the server refuses, or does not speak this protocol.
        """
        texts: list[bytes] = []
        while len(texts) < count:
            texts += [
                text.encode("utf-8", errors="replace") for text in await self._ask(prompt, count - len(texts))
            ]
        return tuple(texts[:count])

    async def _ask(self, prompt: str, count: int) -> list[str]:
        settings = self._settings
        body = {
            "model": settings.model,
            "messages": [{"role": "user", "content": prompt}],
            "n": count,
            "temperature": settings.temperature,
            "max_tokens": settings.max_new_tokens,
        }
        reply = await self._post(f"{settings.url.rstrip('/')}/chat/completions", body)
        try:
            return [choice.message.content or "" for choice in _Reply.model_validate_json(reply).choices]
        except ValidationError as error:
            raise SapoError(
                f"{settings.url} does not answer as chat completions do: {error.errors()[0]['msg']}",
                hint="learner.endpoint ends in the version, as in http://127.0.0.1:8000/v1",
                exit_code=ExitCode.CONFIG,
            ) from error

    async def _post(self, url: str, body: dict[str, object]) -> bytes:
        """A reply's body, of bounded size."""
        import httpx

        try:
            async with self._client.stream("POST", url, json=body) as response:
                data = await _bounded(response)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise EndpointAway(
                f"{url} does not answer: {error or type(error).__name__}",
                hint="is the server running, and learner.endpoint its address?",
                exit_code=ExitCode.NETWORK,
            ) from error
        if response.status_code == HTTPStatus.OK:
            return data
        busy = response.status_code == HTTPStatus.TOO_MANY_REQUESTS
        kind = SapoError if response.status_code in _CLIENT_FAULTS and not busy else EndpointAway
        raise kind(
            f"{url} answers {response.status_code}: {data[:200].decode(errors='replace')}",
            hint="check learner.endpoint, learner.model and learner.endpoint_key_file",
            exit_code=ExitCode.CONFIG if kind is SapoError else ExitCode.NETWORK,
        )


async def _bounded(response: httpx.Response) -> bytes:
    data = bytearray()
    async for piece in response.aiter_bytes():
        data += piece
        if len(data) > MAX_REPLY_BYTES:
            raise EndpointAway(
                f"{response.url} sends more than {MAX_REPLY_BYTES} bytes for one question",
                hint="lower learner.max_new_tokens",
                exit_code=ExitCode.NETWORK,
            )
    return bytes(data)
