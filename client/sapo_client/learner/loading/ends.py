"""Tokens that end a completion, as a model's folder names them."""

from __future__ import annotations

from typing import Any

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.loading.files import read_json


def require_end(name: str, tokenizer: Any, named: tuple[int, ...] = ()) -> int:
    """Return the id of the tokenizer's end token.

    Args:
        name: folder or hub name of the tokenizer.
        tokenizer: as loaded.
        named: end tokens that the model's settings name, which are in the vocabulary.

    Raises:
        SapoError: there is no end token, or it is not in the vocabulary.
    """
    if tokenizer.eos_token_id is None:
        raise SapoError(
            f"the tokenizer of {name!r} has no end-of-text token",
            hint="completions would never end; set eos_token in its tokenizer_config.json",
            exit_code=ExitCode.CONFIG,
        )
    end = int(tokenizer.eos_token_id)
    if end not in named and _is_added(name, str(tokenizer.eos_token)):
        raise SapoError(
            f"the end token {tokenizer.eos_token!r} of {name!r} is not in the vocabulary of its tokenizer",
            hint="set eos_token in its tokenizer_config.json to the token that ends the model's answers",
            exit_code=ExitCode.CONFIG,
        )
    return end


def named_ends(model: Any) -> tuple[int, ...]:
    """Return the ids that end a text by the model's ``generation_config.json``, those with an embedding.

    Chat models name the end of a turn there, and their tokenizer names the end of a text.
    """
    named = getattr(model.generation_config, "eos_token_id", None)
    ids = [named] if isinstance(named, int) else list(named or ())
    count = model.get_input_embeddings().num_embeddings
    return tuple(each for each in dict.fromkeys(ids) if 0 <= each < count)


def _is_added(name: str, token: str) -> bool:
    """Whether a token is in none of the tokenizer's files, so that transformers made a new id for it."""
    vocabulary = read_json(name, "tokenizer.json")
    if vocabulary is None:  # another kind of tokenizer
        return False
    settings = read_json(name, "tokenizer_config.json") or {}
    later = (*vocabulary.get("added_tokens", ()), *settings.get("added_tokens_decoder", {}).values())
    if token in {each["content"] for each in later} or token in (read_json(name, "added_tokens.json") or {}):
        return False
    words = vocabulary["model"].get("vocab", {})
    return token not in (words if isinstance(words, dict) else {word for word, _ in words})
