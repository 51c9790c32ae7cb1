"""What is refused by the small files of a model alone, each with one line that says what to do."""

from __future__ import annotations

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
        f"the model {model!r} is gated: its owner asks everybody to accept terms first",
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
