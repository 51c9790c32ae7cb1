"""Reading of the small files of a model's folder or repository, without loading its weights."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from sapo_client.learner.loading.hub import hub_trouble


def small_file(name: str, file: str) -> Path | None:
    """Return the path of a file of a folder or of a hub's repository; None if it is not there."""
    folder = Path(name)
    if folder.is_dir():
        return folder / file if (folder / file).is_file() else None
    return _from_hub(name, file)


@lru_cache(maxsize=64)
def _from_hub(name: str, file: str) -> Path | None:
    """Return the path of a file of a hub's repository, asked for once; None if it is not there."""
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # not in its __all__
    from transformers.utils import cached_file

    try:
        validate_repo_id(name)
        hub_trouble()
        path = cached_file(
            name,
            file,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
            _raise_exceptions_for_gated_repo=False,
        )
    except (OSError, ValueError):  # no name that a hub could have; whoever loads the model says so
        return None
    return None if path is None else Path(path)


def model_folder(name: str) -> Path:
    """Return the folder of a loaded model's files: the named one, or what was downloaded of a repository."""
    config = small_file(name, "config.json")
    return Path(name) if config is None else config.parent


def read_json(name: str, file: str) -> Any:
    """Return the content of a JSON file; None if it is not there."""
    path = small_file(name, file)
    return None if path is None else json.loads(path.read_text("utf-8"))
