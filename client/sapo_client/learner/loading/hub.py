"""Test whether the Hugging Face hub can be reached, before its library tries."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

PATIENCE_SECONDS: Final = 5.0
"""For a connection, and for an answer."""


@lru_cache(maxsize=1)
def hub_trouble() -> str | None:
    """Return why the hub is not asked in this process; None if it answers.

    It is asked once. If it does not answer, the cache on this machine alone is read from then on: the hub's
    library would ask for each file that is not there six times, for half a minute.
    """
    import httpx
    from huggingface_hub import constants

    if constants.is_offline_mode():
        return "HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set"
    try:
        httpx.head(constants.ENDPOINT, timeout=PATIENCE_SECONDS)
    except httpx.TransportError as error:
        constants.HF_HUB_OFFLINE = True
        return str(error) or type(error).__name__
    return None


def hub_address() -> str:
    """Return the hub's address, which ``HF_ENDPOINT`` names."""
    from huggingface_hub import constants

    return str(constants.ENDPOINT)
