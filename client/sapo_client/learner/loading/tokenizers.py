"""Tokenizer of a folder or hub name, with the chat template that its folder has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.loading.files import read_json, small_file
from sapo_client.learner.loading.weights import UNREADABLE

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_OLD_TEMPLATE: Final = "chat_template.json"
"""Read by transformers' processors of images and texts, and not by its tokenizers."""

_SENTENCEPIECE_START: Final = b"\n"
"""Tag of the first field of its files (protobuf); tiktoken's are lines of base64 and a number."""


def read_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """Return a tokenizer with its chat template, that of ``chat_template.json`` if it has no other.

    Args:
        name: folder or hub name.

    Raises:
        SapoError: its file needs a package that is not installed, or ``chat_template.json`` has no template.
        UNREADABLE: transformers cannot read it.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except UNREADABLE as error:
        if (file := _other_file(Path(name))) is not None:
            raise _unread(name, file) from error
        raise
    if getattr(tokenizer, "chat_template", None) is None:
        tokenizer.chat_template = old_template(name)
    return tokenizer


def has_chat_template(name: str) -> bool:
    """Whether a model's tokenizer has a chat template; reads its small files alone.

    Args:
        name: folder or hub name.

    Raises:
        SapoError: its ``chat_template.json``, which is read if there is no other, holds none.
    """
    if small_file(name, "chat_template.jinja") is not None:
        return True
    try:
        settings = read_json(name, "tokenizer_config.json")
    except ValueError:  # of a folder, this is refused where the tokenizer is read
        return False
    if isinstance(settings, dict) and settings.get("chat_template"):
        return True
    return old_template(name) is not None


def old_template(name: str) -> str | None:
    """Return the chat template of a model's ``chat_template.json``; None if there is no such file.

    Args:
        name: folder or hub name.

    Raises:
        SapoError: the file holds none.
    """
    try:
        content = read_json(name, _OLD_TEMPLATE)
    except ValueError as error:
        raise _no_template(name) from error
    if content is None:
        return None
    template = content.get("chat_template") if isinstance(content, dict) else None
    if isinstance(template, list):  # of several, as tokenizer_config.json may have them, the default one
        template = _default_of(template)
    if not isinstance(template, str):
        raise _no_template(name)
    return template


def _default_of(templates: list[Any]) -> Any:
    """Return the template of the name ``default``; None if there is none."""
    named = [each for each in templates if isinstance(each, dict) and each.get("name") == "default"]
    return named[0].get("template") if named else None


def _no_template(name: str) -> SapoError:
    return SapoError(
        f"the {_OLD_TEMPLATE} of {name!r} holds no chat template",
        hint="copy the model's folder again, or remove the file; without one the model gets the bare task",
        exit_code=ExitCode.CONFIG,
    )


def _other_file(folder: Path) -> Path | None:
    """Return the file of a tokenizer that has no ``tokenizer.json``; None if it has one, or none at all."""
    if (folder / "tokenizer.json").is_file():
        return None
    return next((each for each in sorted(folder.glob("*.model")) if each.is_file()), None)


def _unread(name: str, file: Path) -> SapoError:
    """Return the error for a tokenizer in another format."""
    with file.open("rb") as opened:
        is_sentencepiece = opened.read(1) == _SENTENCEPIECE_START
    package = "sentencepiece" if is_sentencepiece else "tiktoken"
    return SapoError(
        f"cannot load the model {name!r}: it has no tokenizer.json, and its {file.name} cannot be read here",
        hint=f"copy the model's tokenizer.json into the folder, or write one where transformers and {package}"
        " are installed: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)",
        exit_code=ExitCode.CONFIG,
    )
