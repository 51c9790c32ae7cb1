"""Whether the installed PyTorch sees this machine's GPU and has kernels for it: a new GPU may lack them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import torch

from sapo_client.errors import ExitCode, SapoError

_BUILT_FOR: Final = re.compile(r"(sm|compute)_(\d+)(\d)[a-z]?")


def has_kernels(capability: tuple[int, int], built_for: Sequence[str]) -> bool:
    """Whether a build can run on a GPU.

    Machine code (``sm_86``) runs on its own major version from its minor version on; intermediate code
    (``compute_90``) is compiled for every later GPU.

    Args:
        capability: compute capability of the GPU.
        built_for: as ``torch.cuda.get_arch_list`` returns it; what is not of this form counts for nothing.
    """
    for name in built_for:
        if (found := _BUILT_FOR.fullmatch(name)) is None:
            continue
        kind, version = found[1], (int(found[2]), int(found[3]))
        if version <= capability and (kind == "compute" or version[0] == capability[0]):
            return True
    return False


def missing_gpu() -> SapoError:
    """Return the refusal of a setting that needs a GPU where PyTorch sees none: its build or the driver."""
    auto = 'set learner.device = "auto" (lab: --device auto)'
    if torch.version.cuda is None and torch.version.hip is None:
        why, hint = "is built without CUDA", f"install a build with CUDA (pytorch.org), or {auto}"
    else:
        why, hint = "finds no GPU", f"repair the driver (`nvidia-smi` tests it), or {auto}"
    return SapoError(
        f"no CUDA device here: PyTorch {torch.__version__} {why}", hint=hint, exit_code=ExitCode.CONFIG
    )


def require_kernels() -> None:
    """Check the GPU that PyTorch uses; AMD's builds name their GPUs otherwise and are not checked.

    Raises:
        SapoError: the build has no kernels for it.
    """
    if torch.version.hip is not None:
        return
    capability, built_for = torch.cuda.get_device_capability(), torch.cuda.get_arch_list()
    if not has_kernels(capability, built_for):
        raise SapoError(
            f"PyTorch {torch.__version__} has no kernels for {torch.cuda.get_device_name()}"
            f" (sm_{capability[0]}{capability[1]}): it is built for {', '.join(built_for)}",
            hint="install a build that has them (pytorch.org), or train on the CPU with learner.device = cpu",
            exit_code=ExitCode.CONFIG,
        )
