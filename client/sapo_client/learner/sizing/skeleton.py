"""A model without allocated weights, built from ``config.json`` alone on PyTorch's ``meta`` device.

Its modules have shapes and no values. So parameters can be counted, and one forward pass through it tells
which tensors autograd would keep, for every architecture that transformers knows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.adapters import add_adapters, base_model
from sapo_client.learner.cpu.fused_layers import is_llama_style
from sapo_client.learner.loading.causality import RAISED_BY_MODELS
from sapo_client.learner.loading.hub import hub_address, hub_trouble
from sapo_client.learner.loading.refusals import (
    contradicting,
    known_refusal,
    require_config,
    require_whole_model,
)
from sapo_client.learner.policy import PACKAGED
from sapo_client.learner.sizing.experts import register_first_expert

_NARROW_HEAD: Final = 8
"""Width of a head of a narrowed sample; even, for positions are encoded in pairs."""


class NoForwardPass(Exception):
    """An architecture computes nothing without values."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a model.

    Attributes:
        kind: transformers' name of the architecture.
        parameters: number of parameters, tied ones once.
        matrices: those of them in two-dimensional weights of the layers, which 4-bit bases quantise.
        layers: number of decoder layers.
        heads: attention heads of a layer; 0 for one without attention.
        hidden: width of the hidden states.
        head: parameters of the head, the vocabulary times the width.
        vocabulary: number of tokens.
        cache_values: keys and values of one token in all layers.
        window: longest text in tokens; None if the model has no limit.
        llama_style: whether the fast CPU path computes it.
    """

    kind: str
    parameters: int
    matrices: int
    layers: int
    heads: int
    hidden: int
    head: int
    vocabulary: int
    cache_values: int
    window: int | None
    llama_style: bool


@lru_cache(maxsize=8)
def make_skeleton(model: str, *, lora_rank: int = 0) -> Any:
    """Return the model of a name, folder or hub name on the meta device; reads ``config.json`` alone, once.

    Args:
        model: as for ``load_policy``.
        lora_rank: rank of adapters; 0 for none.

    Raises:
        SapoError: there is no such model, or transformers does not know it.
    """
    config = read_config(model)
    try:
        skeleton = _built(model, config, attn_implementation="eager")
    except RAISED_BY_MODELS as error:
        raise _contradiction(model, config, error) from error
    layers = getattr(skeleton.config.get_text_config(decoder=True), "num_hidden_layers", 1)
    if layers < 1:
        raise contradicting(model, f"it names {layers} layers (num_hidden_layers)")
    with torch.device("meta"):
        return add_adapters(skeleton, lora_rank) if lora_rank else skeleton


def make_thin_skeleton(model: str, layers: int, *, lora_rank: int, dtype: torch.dtype) -> Any:
    """Return the model of a name with its first layers only, on the meta device.

    Args:
        model: as for ``load_policy``.
        layers: how many.
        lora_rank: rank of adapters, which are float32; 0 for none.
        dtype: of the other weights.

    Raises:
        SapoError: there is no such model, or transformers does not know it.
        AttributeError: its configuration counts its layers in another way.
    """
    skeleton = _built(model, _thin_config(model, layers), dtype=dtype)
    with torch.device("meta"):
        return add_adapters(skeleton, lora_rank) if lora_rank else skeleton


def make_sample(
    model: str, *, layers: int | None, vocabulary: int, parameters: int, narrow: bool = False
) -> Any | None:
    """Return the first layers of a model of a name with few tokens and random values, on the CPU.

    Args:
        model: as for ``load_policy``.
        layers: how many; of none, the embeddings and the head are left; None for all.
        vocabulary: number of its tokens.
        parameters: the most that it may have.
        narrow: reduce its widths, so that a model of any size is a small one.

    Returns:
        None if it has more, or if an architecture cannot be cut short in this way.

    Raises:
        SapoError: there is no such model, or transformers does not know it.
    """
    try:
        config = copy.deepcopy(read_config(model)) if layers is None else _thin_config(model, layers)
        of_text = _text_config(config)
        of_text.vocab_size = vocabulary
        if getattr(of_text, "pad_token_id", None) is not None:
            of_text.pad_token_id = min(of_text.pad_token_id, vocabulary - 1)
        if narrow:
            _narrow(of_text)
        if sum(each.numel() for each in _built(model, config).parameters()) > parameters:
            return None
        with torch.random.fork_rng(devices=[]):
            return _built(model, config, device="cpu", dtype=torch.float32)
    except RAISED_BY_MODELS:
        return None


def _narrow(config: Any) -> None:
    """Reduce the widths of a configuration, where they have the names that most architectures use."""
    config.hidden_size = _NARROW_HEAD * config.num_attention_heads
    for name in list(vars(config)):
        if name in ("head_dim", "d_kv"):
            setattr(config, name, _NARROW_HEAD)
        elif name.endswith(("ffn_dim", "intermediate_size", "d_inner")):
            setattr(config, name, config.hidden_size)


def _thin_config(model: str, layers: int) -> Any:
    """Return a model's configuration with its first layers only."""
    config = copy.deepcopy(read_config(model))
    of_text = _text_config(config)
    of_text.num_hidden_layers = layers
    if getattr(of_text, "layer_types", None):
        of_text.layer_types = (of_text.layer_types * layers)[:layers]
    return config


def _text_config(config: Any) -> Any:
    """Return the part of a configuration that describes the language model, to be changed."""
    # of an encoder with a decoder, transformers returns a copy
    return config if config.is_encoder_decoder else config.get_text_config(decoder=True)


def quantisation_of(model: str) -> Any:
    """Return how a model's weights are quantised, by its configuration; None for floats.

    Raises:
        SapoError: there is no such model.
    """
    return getattr(read_config(model), "quantization_config", None)


def require_trainable(model: str, lora_rank: int) -> None:
    """Raise if a model's weights are quantised and no adapters are trained.

    Without adapters embeddings and norms alone would be trained.

    Args:
        model: as for ``load_policy``.
        lora_rank: rank of adapters; 0 for none.

    Raises:
        SapoError: they are, or there is no such model.
    """
    if not lora_rank and quantisation_of(model):
        raise SapoError(
            f"the weights of {model!r} are quantised, and training cannot change such",
            hint="set learner.lora_rank = 16 to train adapters on them, or take the model in floats",
            exit_code=ExitCode.CONFIG,
        )


def shape_of(skeleton: Any) -> ModelShape:
    """Return the sizes of a skeleton without adapters."""
    config = skeleton.config.get_text_config(decoder=True)  # of a multimodal model, the language model's part
    head = skeleton.get_output_embeddings().weight
    outside = {id(head), id(skeleton.get_input_embeddings().weight)}
    count = config.num_hidden_layers
    # layers may differ in their heads, as in Gemma 4; transformers then has a configuration of each
    layers = list(config.per_layer_config) if getattr(config, "is_heterogeneous", False) else [config] * count
    return ModelShape(
        kind=skeleton.config.model_type,
        parameters=sum(each.numel() for each in skeleton.parameters()),
        matrices=sum(
            each.numel() for each in skeleton.parameters() if each.ndim == 2 and id(each) not in outside
        ),
        layers=count,
        heads=max((_heads(each) for each in layers), default=0),
        hidden=config.hidden_size,
        head=head.numel(),
        vocabulary=len(head),
        cache_values=sum(map(_cache_values, layers)),
        window=getattr(config, "max_position_embeddings", None),
        llama_style=is_llama_style(skeleton),
    )


def _heads(config: Any) -> int:
    """Return the attention heads of a layer; state space models have none."""
    return int(getattr(config, "num_attention_heads", 0))


def _cache_values(config: Any) -> int:
    """Return the keys and values of one token in a layer."""
    kv_heads = getattr(config, "num_key_value_heads", None) or _heads(config)
    dim = getattr(config, "head_dim", None) or config.hidden_size // max(1, _heads(config))
    return int(2 * kv_heads * dim)


def trained_parameters(skeleton: Any) -> int:
    """Return how many parameters of a skeleton are trained."""
    return sum(each.numel() for each in skeleton.parameters() if each.requires_grad)


def decoder_saved_bytes(skeleton: Any, width: int, *, checkpointing: bool) -> float:
    """Return the bytes that autograd keeps of one row of ``width`` tokens, without parameters and head.

    With gradient checkpointing: every layer's input, and all that one layer keeps.

    Raises:
        NoForwardPass: it cannot be computed.
    """
    base = base_model(skeleton)
    ids = torch.zeros((1, width), dtype=torch.long, device="meta")
    # a whole mask, because transformers looks at the values of everything less
    mask = torch.zeros((1, 1, width, width), device="meta")
    with without_values():
        total = kept_bytes(
            lambda: base.base_model(input_ids=ids, attention_mask=mask, use_cache=False),
            list(skeleton.parameters()),
        )
    if not checkpointing:
        return total
    config = base.config.get_text_config(decoder=True)
    layers, hidden = int(config.num_hidden_layers), int(config.hidden_size)
    return total / layers + layers * width * hidden * 4.0


@contextmanager
def without_values() -> Iterator[None]:
    """Run code of transformers on tensors without values.

    Raises:
        NoForwardPass: the architecture cannot.
    """
    try:
        yield
    except RAISED_BY_MODELS as error:
        raise NoForwardPass(str(error)) from error


def kept_bytes(forward: Callable[[], object], parameters: list[Tensor]) -> float:
    """Return the bytes that autograd keeps of a forward pass on tensors without memory, but parameters."""
    known = {each.untyped_storage()._cdata for each in parameters}
    sizes: dict[int, int] = {}
    held: list[Tensor] = []  # keeps storages alive, because a freed one's address may be used again

    def record(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in known:
            sizes[storage._cdata] = storage.nbytes()
            held.append(tensor.detach())
        return tensor.detach()  # as in ``memory.saved_tensor_bytes``

    with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
        forward()
    return float(sum(sizes.values()))


def read_config(model: str) -> Any:
    """Return transformers' configuration of a model; reads ``config.json`` alone.

    Args:
        model: as for ``load_policy``.

    Raises:
        SapoError: there is no such model, or transformers does not know it.
    """
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig

    if model not in PACKAGED:
        require_whole_model(model)
        require_config(model)
    try:
        if model in PACKAGED:
            with as_file(files("sapo_client") / "models" / model) as folder:
                return AutoConfig.from_pretrained(folder, trust_remote_code=False)
        config = AutoConfig.from_pretrained(model, trust_remote_code=False)
        config._attn_implementation = None  # one that it names may need a package; the learner chooses itself
        return config
    except StrictDataclassError as error:
        raise contradicting(model, str(error).splitlines()[-1].strip()) from error
    except (LookupError, TypeError, AttributeError) as error:
        raise contradicting(model, f"{type(error).__name__}: {error}") from error
    except (OSError, ValueError) as error:
        if known := known_refusal(model, error):
            raise known from error
        # the hub's library takes a path without a folder for a badly formed name
        is_path = model.startswith(("/", ".", "~")) and not Path(model).exists()
        if not (is_path or Path(model).is_dir()) and (trouble := hub_trouble()) is not None:
            raise SapoError(
                f"the model {model!r} is neither a folder nor in the hub's cache here, and {hub_address()}"
                f" is not within reach: {trouble}",
                hint=f"connect to the hub, or give a folder with a config.json, or {' or '.join(PACKAGED)}",
                exit_code=ExitCode.NETWORK,
            ) from error
        why = "there is no such folder" if is_path else str(error).splitlines()[0]
        raise SapoError(
            f"cannot read the configuration of the model {model!r}: {why}",
            hint=f"give a folder with a config.json, a hub name within reach, {' or '.join(PACKAGED)}",
            exit_code=ExitCode.CONFIG,
        ) from error


def _contradiction(model: str, config: Any, error: BaseException) -> SapoError:
    """Return the error for a configuration from which no model can be built."""
    of_text = config.get_text_config(decoder=True)
    pad, vocabulary = (getattr(of_text, name, None) for name in ("pad_token_id", "vocab_size"))
    if isinstance(pad, int) and isinstance(vocabulary, int) and 0 < vocabulary <= pad:
        return contradicting(
            model,
            f"its padding token {pad} is not in its vocabulary of {vocabulary}",
            hint="set pad_token_id in it to null; the learner pads with the tokenizer's token",
        )
    return contradicting(model, f"{type(error).__name__}: {error}")


def _built(model: str, config: Any, *, device: str = "meta", **options: Any) -> Any:
    """Return a model of a configuration in evaluation mode, by default without memory.

    Raises:
        SapoError: transformers has no causal language model of this kind.
    """
    from transformers import AutoModelForCausalLM

    try:
        with torch.device(device):
            return AutoModelForCausalLM.from_config(
                config, trust_remote_code=False, experts_implementation=register_first_expert(), **options
            ).eval()
    except ValueError as error:
        if known := known_refusal(model, error):
            raise known from error
        raise
