"""Sharding of a model over a learner's ranks by FSDP2, and conversion between shards and whole tensors.

Every rank computes the gradient of its own rows' part of the loss, and the loss is divided by the whole
batch's denominator already. So gradients are added up. FSDP2 averages by default, which would divide them by
the number of ranks: clipping and AdamW hide that in the parameters, only the gradient's norm shows it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sapo_client.learner.ranks.group import RankGroup


def shard_model(model: nn.Module, ranks: RankGroup) -> None:
    """Shard a model in place, layer by layer; in a single process it stays as it is.

    Frozen parameters are sharded, too. Parameters keep their names; they become DTensors, whose shape is the
    whole tensor's.
    """
    if ranks.mesh is None:
        return
    from torch.distributed.fsdp import FSDPModule, fully_shard

    layers = set(getattr(model, "_no_split_modules", None) or _layer_names(model))
    for module in [each for each in model.modules() if type(each).__name__ in layers]:
        fully_shard(module, mesh=ranks.mesh)
    # by default the root stays whole after a forward pass without a backward one; its parameters are then
    # copies, and a restored checkpoint or a sampler would not see those that the optimizer updates
    fully_shard(model, mesh=ranks.mesh, reshard_after_forward=True)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)
            # together with the forced sum; alone it is NCCL's PREMUL_SUM
            module.set_gradient_divide_factor(1.0)


def whole_tensor(tensor: Tensor) -> Tensor:
    """Return a sharded tensor in full, or another tensor itself; all ranks call it, in the same order."""
    full: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full


def local_tensor(tensor: Tensor) -> Tensor:
    """Return this rank's part of a sharded tensor, or another tensor itself."""
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part


def sharded_like(full: Tensor, example: Tensor) -> Tensor:
    """Return this rank's shard of a whole tensor, which every rank has, like an example's.

    An example that is not sharded gives the tensor itself.
    """
    if not hasattr(example, "full_tensor"):
        return full
    from torch.distributed.tensor import distribute_tensor

    placed = full.to(device=local_tensor(example).device, dtype=example.dtype)
    mesh, placements = example.device_mesh, example.placements  # type: ignore[attr-defined]
    shard: Tensor = distribute_tensor(placed, mesh, placements, src_data_rank=None)
    return shard


@torch.no_grad()
def copy_trained(source: Any, target: Any) -> None:
    """Copy every trained parameter of a sharded model into an unsharded copy of the model.

    All ranks must call it: each tensor is gathered by all of them, then each writes its own copy.
    """
    targets = dict(target.named_parameters())
    for name, parameter in source.named_parameters():
        if parameter.requires_grad:
            targets[name].copy_(whole_tensor(parameter.detach()))


def _layer_names(model: Any) -> set[str]:
    """Return the class names of a model's layers, as transformers lists them for models under adapters."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return set(getattr(base, "_no_split_modules", None) or ())
