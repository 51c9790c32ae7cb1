"""The policy: a Hugging Face causal language model with its tokenizer, on one device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.adapters import merged
from sapo_client.learner.cpu.linear import with_fast_products
from sapo_client.learner.memory import keep_freed_memory

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from sapo_client.learner.settings import DeviceChoice

BUNDLED: Final = "bundled"
BUNDLED_CHATTY: Final = "bundled-chatty"
"""It knows as much as the other and says it seldom (docs/results.md)."""

PACKAGED: Final = (BUNDLED, BUNDLED_CHATTY)
"""The package's own policies, each a folder of ``sapo_client/models``."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A model and its tokenizer.

    Attributes:
        model: float32 weights, dropout off.
        end: id of the token that ends a completion.
        pad: id that fills rows up; never trained, never attended to.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    device: torch.device
    end: int
    pad: int

    def encode_prompt(self, prompt: str) -> tuple[int, ...]:
        """A prompt's tokens, through the chat template where the tokenizer has one."""
        if getattr(self.tokenizer, "chat_template", None) is None:
            return tuple(self.tokenizer(prompt)["input_ids"])
        text = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], add_generation_prompt=True, tokenize=False
        )
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def check_window(self, prompt: Sequence[int], new_tokens: int) -> None:
        """Proof that the model can read a prompt and write so many tokens after it.

        Raises:
            SapoError: its window is shorter.
        """
        window = getattr(self.model.config, "max_position_embeddings", None)
        if window is not None and len(prompt) + new_tokens > window:
            raise SapoError(
                f"a prompt of {len(prompt)} tokens and {new_tokens} new ones exceed the model's {window}",
                hint="lower max_new_tokens, or take a model with a longer window",
                exit_code=ExitCode.CONFIG,
            )

    def encode_completion(self, text: str, limit: int) -> tuple[int, ...]:
        """A foreign completion's tokens with the end token, cut at ``limit``.

        Text that spells a special token stays text: a stranger must not place control tokens.
        """
        ids = self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return tuple([*ids, self.end][:limit])

    def decode(self, tokens: Sequence[int]) -> str:
        """A completion's text without its end token and other special tokens."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))

    def save(self, folder: Path) -> None:
        """The model in safetensors and the tokenizer, as two lines of transformers load them."""
        merged(self.model).save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def load_policy(model: str, device: DeviceChoice) -> Policy:
    """The policy of a hub name, a local folder, or one of the package's own.

    Raises:
        SapoError: there is no such model, it cannot be read, or the device is missing.
    """
    place = _device(device)
    if model in PACKAGED:
        with as_file(files("sapo_client") / "models" / model) as folder:
            return _load(str(folder), place)
    return _load(model, place)


def _load(name: str, device: torch.device) -> Policy:
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
        model = AutoModelForCausalLM.from_pretrained(
            name, dtype=torch.float32, attn_implementation=_attention(device)
        )
    except (OSError, ValueError, SafetensorError) as error:  # not found, not readable, torn
        raise SapoError(
            f"cannot load the model {name!r}: {str(error).splitlines()[0]}",
            hint=f"give a folder with a transformers model, a hub name within reach, {' or '.join(PACKAGED)}",
            exit_code=ExitCode.CONFIG,
        ) from error
    if tokenizer.eos_token_id is None:
        raise SapoError(
            f"the tokenizer of {name!r} names no end-of-text token",
            hint="completions could never end; set eos_token in its tokenizer_config.json",
            exit_code=ExitCode.CONFIG,
        )
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        raise SapoError(
            f"the tokenizer of {name!r} has more tokens than its model has embeddings",
            hint="they do not belong together, or transformers took another class of tokenizer for it",
            exit_code=ExitCode.CONFIG,
        )
    _without_dropout(model)
    if device.type == "cpu":
        with_fast_products(model)
        keep_freed_memory()
    pad = tokenizer.pad_token_id
    end = int(tokenizer.eos_token_id)
    return Policy(model.to(device), tokenizer, device, end, end if pad is None else int(pad))


def _attention(device: torch.device) -> str:
    """On a CPU, flash attention's backward pass takes half of a short-sequence training step."""
    return "eager" if device.type == "cpu" else "sdpa"


def _without_dropout(model: torch.nn.Module) -> None:
    """Sampling and training must see one and the same function, or ratios are noise."""
    model.eval()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0  # type: ignore[assignment]  # a float of its own, no submodule


def _device(choice: DeviceChoice) -> torch.device:
    if choice == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if choice == "cuda" and not torch.cuda.is_available():
        raise SapoError(
            "no CUDA device here", hint="use --device auto or --device cpu", exit_code=ExitCode.CONFIG
        )
    return torch.device(choice)
