"""Refusals of a model by its small files alone, each with a one-line hint."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.loading.files import read_json, small_file


def require_whole_model(name: str) -> None:
    """Raise if a name is an adapter's; transformers would load the base that it names, from elsewhere.

    Args:
        name: folder or hub name.

    Raises:
        SapoError: it is.
    """
    if small_file(name, "adapter_config.json") is not None:
        raise SapoError(
            f"{name!r} is an adapter (it has an adapter_config.json), not a whole model",
            hint="merge the adapter into its base first: peft's merge_and_unload(), then save_pretrained();"
            " if the weights are merged already, remove adapter_config.json",
            exit_code=ExitCode.CONFIG,
        )


def require_config(name: str) -> None:
    """Raise what transformers would say of a folder's ``config.json`` in words that lead nowhere.

    Args:
        name: folder or hub name.

    Raises:
        SapoError: it is missing, no JSON, or names a data type that no weights are trained from, or a method
            of quantisation that transformers does not know.
    """
    folder = Path(name)
    if folder.is_file():
        hint = _GGUF_HINT if folder.suffix == ".gguf" else _FOLDER_HINT
        raise _config_error(f"{name!r} is a file, not a model's folder", hint)
    if folder.is_dir() and not (folder / "config.json").is_file():
        is_gguf = any(folder.glob("*.gguf"))
        hint = _GGUF_HINT if is_gguf else _FOLDER_HINT
        raise _config_error(f"the folder {name!r} has no config.json", hint)
    try:
        settings = read_json(name, "config.json")
    except ValueError as error:
        raise _config_error(f"the config.json of {name!r} is no valid JSON: {error}", _ANEW_HINT) from error
    if settings is None:  # of the hub it may be missing; who loads it says so
        return
    if not isinstance(settings, dict):
        raise _config_error(f"the config.json of {name!r} is no JSON object", _ANEW_HINT)
    kind = settings.get("dtype") or settings.get("torch_dtype")
    _require_known_quantisation(name, settings.get("quantization_config"))
    is_other = isinstance(kind, str) and kind.removeprefix("torch.") not in _TYPES
    if is_other and not settings.get("quantization_config"):
        raise _config_error(
            f"the config.json of {name!r} names the data type {kind!r}, which cannot be trained",
            f"set dtype in it to one of {', '.join(_TYPES)}, the type of its weights",
        )


def _require_known_quantisation(name: str, quantisation: Any) -> None:
    """Raise if transformers does not know how weights are quantised; it would take them for floats."""
    if not isinstance(quantisation, dict) or not quantisation:
        return
    from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING

    method = quantisation.get("quant_method")
    is_bitsandbytes = quantisation.get("load_in_4bit") or quantisation.get("load_in_8bit")
    if is_bitsandbytes or method in AUTO_QUANTIZATION_CONFIG_MAPPING:
        return
    how = "by a method that it does not name" if method is None else f"by the method {method!r}"
    raise _config_error(
        f"the config.json of {name!r} says that the weights are quantised {how}, which the installed"
        " transformers does not know",
        "take the model in floats or quantised by another method; if its files hold floats, remove"
        " quantization_config from its config.json",
    )


def require_generation_settings(name: str) -> None:
    """Raise if a ``generation_config.json`` cannot be read; a chat model names its end of a turn there.

    Args:
        name: folder or hub name.

    Raises:
        SapoError: it is no JSON object, or transformers would refuse it or pass over its end tokens.
    """
    from transformers import GenerationConfig

    try:
        settings = read_json(name, "generation_config.json")
    except ValueError as error:
        raise _generation_error(name, f"no valid JSON: {error}") from error
    if settings is None:
        return
    if not isinstance(settings, dict):
        raise _generation_error(name, "no JSON object")
    named = settings.get("eos_token_id")
    ends = named if isinstance(named, list) else [] if named is None else [named]
    if not all(type(each) is int for each in ends):
        raise _generation_error(name, f"wrong: eos_token_id is {named!r}, not a token's id or a list of ids")
    try:
        GenerationConfig.from_dict(dict(settings))
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise _generation_error(name, f"wrong: {str(error).splitlines()[0]}") from error


def _generation_error(name: str, why: str) -> SapoError:
    return _config_error(
        f"the generation_config.json of {name!r} is {why}",
        "correct it or copy the model's folder again; its end tokens alone are used",
    )


_TYPES: Final = ("float32", "bfloat16", "float16", "float64", "auto")
_ANEW_HINT: Final = "copy the model's folder again"
_FOLDER_HINT: Final = (
    "give the folder that has the model's config.json, its weights (*.safetensors) and its tokenizer.json"
)
_GGUF_HINT: Final = "GGUF files cannot be trained: take the model from which they were made, in safetensors"


def _config_error(text: str, hint: str) -> SapoError:
    return SapoError(text, hint=hint, exit_code=ExitCode.CONFIG)


def contradicting(
    name: str, why: str, *, hint: str = "correct it, or copy the model's folder again"
) -> SapoError:
    """Return the error for a ``config.json`` that no model can be built from.

    Args:
        name: folder or hub name.
        why: which settings contradict each other; its first line is shown.
        hint: what to do.
    """
    return _config_error(f"the config.json of {name!r} contradicts itself: {why.splitlines()[0]}", hint)


def known_refusal(name: str, error: BaseException) -> SapoError | None:
    """Return the error of a person for what transformers or the hub raised; None if it is none of these.

    A model that brings code (``auto_map``) is refused because that code could read the account's key.

    Args:
        name: folder or hub name.
        error: what was raised.
    """
    if is_gated(error):
        return gated_error(name)
    if "trust_remote_code" in str(error):
        return SapoError(
            f"the model {name!r} needs code of its own (auto_map in its files), which is never run here",
            hint="take a model whose architecture transformers has; newer releases of transformers have more",
            exit_code=ExitCode.CONFIG,
        )
    if "Should have a `model_type` key" in str(error):
        return _config_error(
            f"the config.json of {name!r} has no model_type, by which transformers knows the architecture",
            _ANEW_HINT,
        )
    if "does not recognize this architecture" in str(error):
        kind = (read_json(name, "config.json") or {}).get("model_type", "unknown")
        return _config_error(
            f"the model {name!r} is of the kind {kind!r}, which the installed transformers does not know",
            "pip install --upgrade transformers if the model is new, or take another one",
        )
    if "Unrecognized configuration class" in str(error):
        kind = (read_json(name, "config.json") or {}).get("model_type", "unknown")
        return SapoError(
            f"the model {name!r} is of the kind {kind!r}, which is no causal language model in transformers",
            hint="take a causal (decoder) language model, as Qwen/Qwen2.5-0.5B-Instruct",
            exit_code=ExitCode.CONFIG,
        )
    return None


def gated_error(model: str) -> SapoError:
    """Return the error for a model whose terms were not accepted."""
    return SapoError(
        f"the model {model!r} is gated: its owner requires users to accept terms first",
        hint=f"accept them at https://huggingface.co/{model}, then log in: hf auth login",
        exit_code=ExitCode.CONFIG,
    )


def is_gated(error: BaseException) -> bool:
    """Whether the hub refused a model because its terms were not accepted; transformers wraps the reason."""
    from huggingface_hub.errors import GatedRepoError

    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, GatedRepoError):
        cause = cause.__cause__ or cause.__context__
    return cause is not None or "gated repo" in str(error)
