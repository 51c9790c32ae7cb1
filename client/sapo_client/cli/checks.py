"""The checks of `sapo doctor` on this machine, one function each."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from sapo_client.errors import SapoError
from sapo_client.paths import DataDir

State = Literal["ok", "warn", "fail"]
GIB = 1024**3
LOW_DISK_BYTES = 5 * GIB  # a 0.5 B model, its optimiser and three checkpoints
NO_DISK_BYTES = GIB // 2  # the bundled model, its checkpoints and the event files


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check."""

    name: str
    state: State
    detail: str
    hint: str = ""


def check_python() -> Check:
    """Check the interpreter and the operating system."""
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.platform != "linux":
        return Check("python", "warn", found, "only Linux is tested; the checker jail is weaker elsewhere")
    return Check("python", "ok", found)


def check_disk(data: DataDir) -> Check:
    """Check free space and permission in the data directory."""
    folder = next(path for path in (data.root, *data.root.absolute().parents) if path.exists())
    free = shutil.disk_usage(folder).free
    found = f"{free / GIB:.1f} GiB free for {data.root}"
    if not os.access(folder, os.W_OK | os.X_OK):
        return Check("disk", "fail", f"{folder} is not writable", "choose another directory with --data-dir")
    if free < NO_DISK_BYTES:
        return Check("disk", "fail", found, "free some space, or choose another disk with --data-dir")
    if free < LOW_DISK_BYTES:
        return Check("disk", "warn", found, "enough for the bundled model; a larger one needs 5 GiB")
    return Check("disk", "ok", found)


def check_identity(identity: str | None) -> Check:
    """Check the identity file and its mode, without decrypting it."""
    from sapo_client import keystore

    if identity is None:
        return Check("identity", "warn", "none is configured", "make one: sapo keys new key")
    try:
        file = keystore.read(keystore.locate(identity))
    except SapoError as error:
        return Check("identity", "fail", error.text, error.hint)
    if not file.encrypted:
        return Check(
            "identity", "warn", f"{identity} is stored without a passphrase", "acceptable on a testnet only"
        )
    return Check("identity", "ok", f"{identity}, account {file.account}, encrypted")


def check_torch(device: str) -> Check:
    """Check the training library and its device."""
    try:
        import torch
    except (ImportError, OSError) as error:
        return Check("torch", "fail", str(error), "reinstall sapo-swarm: pip install --force-reinstall torch")
    cuda = torch.cuda.is_available()
    if device == "cuda" and not cuda:
        return Check(
            "torch", "fail", f"{torch.__version__} sees no CUDA device", "set learner.device to auto"
        )
    used = torch.cuda.get_device_name() if cuda and device != "cpu" else f"CPU, {os.cpu_count()} cores"
    return Check("torch", "ok", f"{torch.__version__} on {used}")


def check_jail() -> Iterator[Check]:
    """Check each isolation layer of the checker jail on this machine."""
    from sapo_verification.jail.launch import describe

    for restriction in describe():
        hint = (
            ""
            if restriction.works
            else "answers of strangers are scored behind the other layers; prefer Linux 5.13+"
        )
        yield Check(
            f"jail: {restriction.name}", "ok" if restriction.works else "warn", restriction.detail, hint
        )
