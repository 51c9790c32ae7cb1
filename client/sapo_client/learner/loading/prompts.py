"""Rendering of a task as a prompt: unchanged, or through a chat template.

Templates are programs of strangers. Some refuse a conversation of one message, some take texts in parts only,
some leave out what they do not expect. So the ways are tried once, when the tokenizer is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from threading import Lock
from typing import Any, Final

from sapo_client.errors import ExitCode, SapoError

_MARKER: Final = "Task 4711: 12 + 7 = ?\nAnswer between <answer> and </answer>."
"""Stands for a task's text."""


_WITHOUT_REASONING: Final = {"enable_thinking": False}
"""Variable by which templates, as of Qwen 3 and SmolLM 3, leave the reasoning out. It takes thousands of
tokens, and the longest completion of a task is some hundred: none would have an answer."""

_RAISED: Final = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
)
"""What code in a template raises, Jinja's own errors aside."""

_MAX_FRAMES: Final = 2000
"""Of Python: twice its default. Calls that are nested 100,000 deep, as py_ecc permits, end the process."""

_BOUND: Final = Lock()
"""The bound is the interpreter's, and a sampler in another thread renders prompts, too."""


class PromptForm(StrEnum):
    """How a task becomes a prompt.

    Attributes:
        BARE: its text alone; there is no chat template.
        USER: a user's message.
        PARTS: a user's message whose content is a list of parts, as multimodal templates have it.
        AFTER_SYSTEM: a user's message after an empty one of the system.
    """

    BARE = "bare"
    USER = "user"
    PARTS = "parts"
    AFTER_SYSTEM = "after-system"

    @property
    def notice(self) -> str:
        """The notice that a node prints at its start; empty for the usual forms."""
        return _NOTICES.get(self, "")


_NOTICES: Final = {
    PromptForm.PARTS: "the chat template takes no plain text: tasks are given to it as a list of parts",
    PromptForm.AFTER_SYSTEM: "the chat template requires a system message: each task has an empty one",
}

_MESSAGES: Final[dict[PromptForm, Callable[[str], list[dict[str, Any]]]]] = {
    PromptForm.USER: lambda text: [{"role": "user", "content": text}],
    PromptForm.PARTS: lambda text: [{"role": "user", "content": [{"type": "text", "text": text}]}],
    PromptForm.AFTER_SYSTEM: lambda text: [
        {"role": "system", "content": ""},
        {"role": "user", "content": text},
    ],
}
"""Conversations by form, in the order in which they are tried."""


class TemplateRaised(SapoError):
    """The chat template raised for a text; it may take others."""


def choose_form(name: str, tokenizer: Any) -> PromptForm:
    """Return the first form in which the task's text is in the prompt.

    Args:
        name: folder or hub name of the tokenizer.
        tokenizer: as loaded.

    Raises:
        SapoError: its chat template raises, or leaves the text out, in every form.
    """
    if getattr(tokenizer, "chat_template", None) is None:
        return PromptForm.BARE
    reasons = []
    for form in _MESSAGES:
        try:
            if _MARKER in render(tokenizer, _MARKER, form):
                return form
            reasons.append("leaves the task's text out")
        except SapoError as error:
            reasons.append(error.text)
    raise SapoError(
        f"the chat template of {name!r} cannot be used: with a user's message it {reasons[0]}",
        hint="correct or remove chat_template.jinja (or chat_template in tokenizer_config.json);"
        " without one the model gets the bare task",
        exit_code=ExitCode.CONFIG,
    )


def render(tokenizer: Any, text: str, form: PromptForm) -> str:
    """Return a task as a prompt.

    Args:
        tokenizer: with a chat template, unless the form is BARE.
        text: of the task.
        form: of ``choose_form``.

    Raises:
        TemplateRaised: the chat template raised.
    """
    from jinja2 import TemplateError

    if form is PromptForm.BARE:
        return text
    messages = _MESSAGES[form](text)
    try:
        with _few_frames():
            return str(
                tokenizer.apply_chat_template(
                    messages, add_generation_prompt=True, tokenize=False, **_WITHOUT_REASONING
                )
            )
    except (TemplateError, *_RAISED) as error:
        lines = str(error).splitlines()
        raise TemplateRaised(
            f"raises {type(error).__name__}: {lines[0] if lines else 'no reason'}",
            hint="correct the model's chat_template.jinja, or remove it",
            exit_code=ExitCode.CONFIG,
        ) from error


@contextmanager
def _few_frames() -> Iterator[None]:
    """Bound how deep calls are nested meanwhile; packages raise the bound to where the stack ends."""
    with _BOUND:
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(min(before, _MAX_FRAMES))
        try:
            yield
        finally:
            sys.setrecursionlimit(before)
