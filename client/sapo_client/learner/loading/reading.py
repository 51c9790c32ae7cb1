"""Loading of tokenizer and model of a folder or hub name, or a one-line reason against training them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from sapo_client.errors import ExitCode, SapoError
from sapo_client.imports import collector_paused
from sapo_client.learner.loading.ends import named_ends, require_end
from sapo_client.learner.loading.heads import require_tied_heads
from sapo_client.learner.loading.hub import hub_trouble
from sapo_client.learner.loading.prompts import PromptForm, choose_form
from sapo_client.learner.loading.refusals import (
    known_refusal,
    require_generation_settings,
    require_whole_model,
)
from sapo_client.learner.loading.tokenizers import read_tokenizer
from sapo_client.learner.loading.values import require_floats
from sapo_client.learner.loading.weights import (
    UNREADABLE,
    UnusedWeights,
    first_line,
    require_all_weights,
    unreadable,
    unused_weights,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


_NO_SDPA: Final = "does not support an attention implementation through torch.nn.functional.scaled_dot"
"""Beginning of what transformers says of an architecture without that attention."""


@dataclass(frozen=True, slots=True)
class ReadModel:
    """Model and tokenizer as read.

    Attributes:
        ends: ids of the tokens that end a completion; the first is the tokenizer's end token.
        form: in which the tokenizer's chat template takes tasks.
        unused: weights in the files that the model has no place for; None if there are none.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    ends: tuple[int, ...]
    form: PromptForm
    unused: UnusedWeights | None


def read_model(name: str, *, hint: str, **options: Any) -> ReadModel:
    """Read a model whole, and check that tokenizer and model can be trained together.

    Args:
        name: folder or hub name.
        hint: what to do if the folder does not show the reason.
        options: transformers' options for loading a model; on the device ``meta`` headers alone are read.

    Raises:
        SapoError: they cannot be read, or not be trained.
    """
    with collector_paused():
        from safetensors import SafetensorError

        import_module("transformers.modeling_utils")  # else the first model imports it

    require_whole_model(name)
    require_generation_settings(name)
    try:
        tokenizer = read_tokenizer(name)
        model, report = _loaded(name, options)
    except torch.OutOfMemoryError:
        raise
    except (*UNREADABLE, SafetensorError) as error:
        raise refusal(name, error, hint=hint) from error
    require_all_weights(name, model, report)
    require_floats(name, model)
    require_tied_heads(name, model)
    _require_words(name, tokenizer)
    named = named_ends(model)
    end = require_end(name, tokenizer, named)
    if len(tokenizer) > (count := model.get_input_embeddings().num_embeddings):
        raise SapoError(
            f"the tokenizer of {name!r} has {len(tokenizer)} tokens, and its model has embeddings of {count}",
            hint="copy the tokenizer's files that belong to these weights into the folder; for tokens that"
            " were added later, the model needs resize_token_embeddings() and training",
            exit_code=ExitCode.CONFIG,
        )
    ends = (end, *(each for each in named if each != end))
    return ReadModel(model, tokenizer, ends, choose_form(name, tokenizer), unused_weights(name, report))


def _loaded(name: str, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a model and transformers' report of the loading, with eager attention where it has no other."""
    from transformers import AutoModelForCausalLM

    always = {
        "trust_remote_code": False,
        "output_loading_info": True,
        "ignore_mismatched_sizes": True,  # refused by the caller, with their names
    }
    try:
        model, report = AutoModelForCausalLM.from_pretrained(name, **always, **options)
    except ValueError as error:  # of Gemma 2 or gpt-oss, before any weight is read
        if options.get("attn_implementation") != "sdpa" or _NO_SDPA not in str(error):
            raise
        eager = {**options, "attn_implementation": "eager"}
        model, report = AutoModelForCausalLM.from_pretrained(name, **always, **eager)
    return model, report


def _require_words(name: str, tokenizer: Any) -> None:
    """Raise if a tokenizer has no vocabulary, as transformers makes one where tokenizer.json is missing."""
    if not tokenizer("12 + 7 = 19")["input_ids"]:
        raise SapoError(
            f"the tokenizer of {name!r} turns a text into no tokens: it has no vocabulary",
            hint="copy the tokenizer's files (tokenizer.json, or vocab.json and merges.txt) into the folder",
            exit_code=ExitCode.CONFIG,
        )


def refusal(name: str, error: BaseException, *, hint: str) -> SapoError:
    """Return the error of a person for what transformers raised.

    Args:
        name: folder or hub name.
        error: what was raised.
        hint: what to do if nothing shows the reason.
    """
    return known_refusal(name, error) or unreadable(name, error, hint=hint)


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """Load a tokenizer alone, as for a model on a server.

    Raises:
        SapoError: there is no such tokenizer, or it has no end token.
    """
    if not Path(name).is_dir():
        hub_trouble()  # one that does not answer is not asked for each of the tokenizer's files
    try:
        tokenizer = read_tokenizer(name)
    except UNREADABLE as error:
        if known := known_refusal(name, error):
            raise known from error
        raise SapoError(
            f"cannot load the tokenizer {name!r}: {first_line(error)}",
            hint="the server names it; it is a folder here, or a name on the Hugging Face hub within reach",
            exit_code=ExitCode.CONFIG,
        ) from error
    require_end(name, tokenizer)
    return tokenizer
