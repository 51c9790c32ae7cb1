"""The file that a person sends when `sapo` fails by a bug."""

from __future__ import annotations

import json
import os
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path

from sapo_client.cli.environment import environment
from sapo_client.logs import without_secrets
from sapo_client.paths import (
    PRIVATE_DIRECTORY_MODE,
    DataDir,
    config_file,
    default_data_folder,
    reports_folder,
)


def write_bug_report(error: BaseException) -> Path:
    """Write the error, its stack, the command and this machine's data to a new file; return its path.

    Values of options are left out, for they may be secret; of URLs only scheme, host and port are kept.

    Raises:
        OSError: the file cannot be written.
    """
    now = datetime.now(UTC)
    folder = reports_folder()
    folder.mkdir(mode=PRIVATE_DIRECTORY_MODE, parents=True, exist_ok=True)
    path = folder / f"bug-{now:%Y%m%dT%H%M%S}-{os.getpid()}.txt"
    names = [word.partition("=")[0] for word in sys.argv[1:] if word.startswith("-") or word.isalpha()]
    parts = (
        f"{now.isoformat(timespec='seconds')}  sapo {' '.join(names)}",
        "".join(traceback.format_exception(error)),
        json.dumps(environment(config_file(), DataDir(default_data_folder())), indent=2),
    )
    path.write_text(without_secrets("\n\n".join(parts)) + "\n", encoding="utf-8")
    return path
