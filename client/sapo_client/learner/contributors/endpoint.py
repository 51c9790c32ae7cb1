"""Answers from a server with OpenAI's chat completions API (vLLM, llama.cpp, Ollama, a commercial one)."""

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
"""Limit of a reply; sixteen completions of the protocol's largest size are a fraction of it."""

_CLIENT_FAULTS: Final = range(HTTPStatus.BAD_REQUEST, HTTPStatus.INTERNAL_SERVER_ERROR)


class EndpointUnavailable(SapoError):
    """The server does not answer at present; the node waits and tries again."""

    transient = True
    finding = "server_away"


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """Address of a server and parameters of its completions.

    Attributes:
        url: including the version, as in ``http://127.0.0.1:8000/v1``.
        model: the server's name of the model.
        key: sent as a bearer token; None for none.
        temperature: of sampling.
        max_new_tokens: longest completion.
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
    """A server as an answerer."""

    def __init__(self, settings: EndpointSettings) -> None:
        import httpx

        self._settings = settings
        headers = {} if settings.key is None else {"Authorization": f"Bearer {settings.key}"}
        self._client = httpx.AsyncClient(headers=headers, timeout=TIMEOUT_SECONDS)

    async def answer(self, prompt: str, count: int) -> tuple[bytes, ...]:
        """Return ``count`` sampled completions; repeat the request if the server returns fewer at once.

        Raises:
            EndpointUnavailable: the server does not answer, or answers with a server error.
            SapoError: the server refuses the request, or its reply has another format.
        """
        texts: list[bytes] = []
        while len(texts) < count:
            texts += [
                text.encode("utf-8", errors="replace") for text in await self._ask(prompt, count - len(texts))
            ]
        return tuple(texts[:count])

    async def _ask(self, prompt: str, count: int) -> list[str]:
        """Return the completions of one request, at least one."""
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
                f"the reply of {settings.url} is not a chat completion: {error.errors()[0]['msg']}",
                hint="learner.endpoint ends in the version, as in http://127.0.0.1:8000/v1",
                exit_code=ExitCode.CONFIG,
            ) from error

    async def _post(self, url: str, body: dict[str, object]) -> bytes:
        """Return the body of a successful reply, of bounded size."""
        import httpx

        try:
            async with self._client.stream("POST", url, json=body) as response:
                data = await _bounded(response)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise EndpointUnavailable(
                f"{url} does not answer: {error or type(error).__name__}",
                hint="is the server running, and learner.endpoint its address?",
                exit_code=ExitCode.NETWORK,
            ) from error
        if response.status_code == HTTPStatus.OK:
            return data
        busy = response.status_code == HTTPStatus.TOO_MANY_REQUESTS
        kind = SapoError if response.status_code in _CLIENT_FAULTS and not busy else EndpointUnavailable
        raise kind(
            f"{url} answers {response.status_code}: {data[:200].decode(errors='replace')}",
            hint="check learner.endpoint, learner.model and learner.endpoint_key_file",
            exit_code=ExitCode.CONFIG if kind is SapoError else ExitCode.NETWORK,
        )


async def _bounded(response: httpx.Response) -> bytes:
    """Read a body of at most ``MAX_REPLY_BYTES``."""
    data = bytearray()
    async for piece in response.aiter_bytes():
        data += piece
        if len(data) > MAX_REPLY_BYTES:
            raise EndpointUnavailable(
                f"{response.url} sends more than {MAX_REPLY_BYTES} bytes for one request",
                hint="lower learner.max_new_tokens",
                exit_code=ExitCode.NETWORK,
            )
    return bytes(data)
