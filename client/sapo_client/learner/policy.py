"""The policy: a Hugging Face causal language model with its tokenizer, on one device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.adapters import add_adapters, merge_adapters
from sapo_client.learner.cpu.allocator import tune_malloc
from sapo_client.learner.cpu.linear import use_fast_linear
from sapo_client.learner.loading.causality import require_causal, require_numbers
from sapo_client.learner.loading.prompts import PromptForm, TemplateRaised, render
from sapo_client.learner.loading.reading import read_model
from sapo_client.learner.loading.values import require_no_nan
from sapo_client.learner.losses.plain_head import has_all_logits
from sapo_client.learner.sizing.kernels import missing_gpu, require_kernels
from sapo_client.learner.sizing.precision import keep_differentiable, loading_options

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from sapo_client.learner.settings import DeviceChoice
    from sapo_client.learner.sizing.precision import BaseName

BUNDLED: Final = "bundled"
BUNDLED_CHATTY: Final = "bundled-chatty"
"""A policy as good as ``BUNDLED`` that rarely gives a bare answer (docs/results.md)."""

BUNDLED_SMALL: Final = "bundled-small"
"""A policy of a fifth of the size with a tokenizer of its own, for experiments with different models."""

SPECIALIST_A: Final = "specialist-a"
SPECIALIST_B: Final = "specialist-b"
"""Policies with worked solutions of three families each, of which the other has never seen an item."""

PACKAGED: Final = (BUNDLED, BUNDLED_CHATTY, BUNDLED_SMALL, SPECIALIST_A, SPECIALIST_B)
"""Policies in the package, each a folder of ``sapo_client/models``."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Causal language model with its tokenizer, on one device.

    Attributes:
        model: dropout off; float32 weights, or under adapters a frozen base of another type.
        end: id of the tokenizer's end token, which is appended to others' completions.
        pad: id that pads rows; never trained, never attended to.
        source: folder or hub name that the model was loaded from.
        other_ends: ids of more tokens that end a completion, as a chat model's end of a turn.
        form: in which tasks become prompts.
        notice: what the operator should know of the model's files; empty if nothing.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    device: torch.device
    end: int
    pad: int
    source: str = ""
    other_ends: tuple[int, ...] = ()
    form: PromptForm = PromptForm.BARE
    notice: str = ""

    @property
    def ends(self) -> tuple[int, ...]:
        """Ids of all tokens that end a completion."""
        return (self.end, *self.other_ends)

    @property
    def window(self) -> int | None:
        """Tokens of the longest text; None if the model does not say, or is on a server."""
        config = self.model.config
        of_text = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
        window: int | None = getattr(of_text, "max_position_embeddings", None)
        return window

    def encode_prompt(self, prompt: str) -> tuple[int, ...]:
        """Return a prompt's token ids; the tokenizer's chat template is applied where it has one.

        Raises:
            TemplateRaised: the template raised.
        """
        text = render(self.tokenizer, prompt, self.form)
        is_bare = self.form is PromptForm.BARE  # a template writes special tokens itself
        return tuple(self.tokenizer(text, add_special_tokens=is_bare)["input_ids"])

    def has_room(self, prompt: Sequence[int], new_tokens: int, max_tokens: int | None = None) -> bool:
        """Whether a prompt and ``new_tokens`` more fit the model's window, and ``max_tokens`` in all."""
        bounds = [each for each in (self.window, max_tokens) if each is not None]
        return all(len(prompt) + new_tokens <= each for each in bounds)

    def encode_if_taken(self, prompt: str) -> tuple[int, ...] | None:
        """Return a prompt's token ids; None if the chat template raises for it."""
        try:
            return self.encode_prompt(prompt)
        except TemplateRaised:
            return None

    def require_room(self, new_tokens: int, max_tokens: int | None = None) -> None:
        """Raise if not even a prompt of one letter fits with ``new_tokens`` more tokens.

        Args:
            new_tokens: of the longest completion.
            max_tokens: of a prompt with its completion, by the sampler; None if only the model limits them.

        Raises:
            SapoError: it does not.
        """
        shortest = self.encode_if_taken("1")
        if shortest is not None and not self.has_room(shortest, new_tokens, max_tokens):
            is_model = self.has_room(shortest, new_tokens) is False
            reads = f"the model reads {self.window}" if is_model else f"its vLLM server reads {max_tokens}"
            longer = (
                "take a model with a longer window" if is_model else "start it with a larger --max-model-len"
            )
            raise SapoError(
                f"{reads} tokens, and answers of {new_tokens} leave no room for a task",
                hint=f"lower learner.max_new_tokens, or {longer}",
                exit_code=ExitCode.CONFIG,
            )

    def encode_completion(self, text: str, limit: int) -> tuple[int, ...]:
        """Return the token ids of another node's completion with the end token, cut at ``limit`` tokens.

        Text that spells a special token stays text: other nodes must not be able to insert control tokens.
        """
        ids = self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return tuple([*ids, self.end][:limit])

    def decode(self, tokens: Sequence[int]) -> str:
        """Return a completion's text without its end token and special tokens."""
        kept = tokens[:-1] if tokens and tokens[-1] in self.ends else tokens
        return str(self.tokenizer.decode(list(kept), skip_special_tokens=True))

    def save(self, folder: Path) -> None:
        """Write model (safetensors) and tokenizer so that transformers' ``from_pretrained`` loads both."""
        merge_adapters(self.model).save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def with_adapters(self, rank: int) -> Policy:
        """Return the policy with low-rank adapters, which are trained instead of the model.

        Raises:
            SapoError: the architecture has no layers that adapters fit.
        """
        return replace(self, model=add_adapters(self.model, rank))


def load_policy(
    model: str, device: DeviceChoice, *, base: BaseName = "float32", on_host: bool = False
) -> Policy:
    """Load a policy by its name in the package, from a local folder or from the Hugging Face hub.

    Args:
        model: the name or folder.
        device: where to.
        base: data type; anything but float32 only for a policy that gets adapters.
        on_host: leave the weights in host memory, to be moved to the device in shards.

    Raises:
        SapoError: there is no such model, it cannot be read, or the device is missing.
    """
    chosen = chosen_device(device)
    if model in PACKAGED:
        with as_file(files("sapo_client") / "models" / model) as folder:
            return _load(str(folder), chosen, base, on_host=on_host)
    return _load(model, chosen, base, on_host=on_host)


def _load(name: str, device: torch.device, base: BaseName, *, on_host: bool) -> Policy:
    read = read_model(
        name,
        hint=f"give a folder with a transformers model, a hub name within reach, {' or '.join(PACKAGED)}",
        attn_implementation=_attention(device),
        **loading_options(base, device),
    )
    model, tokenizer, end = read.model, read.tokenizer, read.ends[0]
    _disable_dropout(model)
    if device.type == "cpu":
        use_fast_linear(model)
        keep_differentiable(model)
    # quantised weights are placed while loading
    model = model if on_host or base == "nf4" else model.to(device)
    require_numbers(name, model)
    require_no_nan(name, model)
    require_causal(name, model)
    if device.type == "cpu":
        tune_malloc(model.num_parameters(), all_logits=has_all_logits(model))
    pad = tokenizer.pad_token_id
    return Policy(
        model=model,
        tokenizer=tokenizer,
        device=device,
        end=end,
        pad=end if pad is None else int(pad),
        source=name,
        other_ends=read.ends[1:],
        form=read.form,
        notice="" if read.unused is None else read.unused.notice,
    )


def _attention(device: torch.device) -> str:
    """Return transformers' name of the attention to use, where the architecture has it.

    On a CPU, the fused kernel's backward pass takes half of a training step on short sequences.
    """
    return "eager" if device.type == "cpu" else "sdpa"


def _disable_dropout(model: torch.nn.Module) -> None:
    """Switch dropout off: sampling and training must compute the same function, or ratios are noise."""
    model.eval()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0  # type: ignore[assignment]  # a plain float attribute, not a submodule


def chosen_device(choice: DeviceChoice) -> torch.device:
    """Return the device of a setting.

    Raises:
        SapoError: it is missing, or the installed PyTorch has no kernels for it.
    """
    has_cuda = torch.cuda.is_available()
    if choice == "cuda" and not has_cuda:
        raise missing_gpu()
    if choice == "cpu" or not has_cuda:
        return torch.device("cpu")
    require_kernels()
    return torch.device("cuda")
