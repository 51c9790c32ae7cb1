"""Communication of a learner's ranks, which all run the same calls in the same order.

A rank is one process of a learner. Its model, gradients and optimizer are sharded over the ranks
(``shard.py``); everything else, such as statistics and demonstrations, is the same in all of them. Messages
and figures go over gloo on the CPU; sharded tensors over nccl on GPUs and over gloo on CPUs. A learner of one
process is a group of one rank, for which every function here returns its own argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import cbor2
import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

T = TypeVar("T")

IDLE: Final = timedelta(days=365)
"""Time limit of a collective: ranks wait for the next call in one, and the node ends a call that hangs."""


@dataclass(frozen=True, slots=True)
class RankGroup:
    """This process among a learner's ranks.

    Attributes:
        rank: number of this process, from 0.
        size: number of ranks.
        leader: the rank that communicates with the node and writes checkpoints.
        on_host: number of ranks on this machine, which share its memory.
        mesh: the devices over which tensors are sharded; None for a single process.
    """

    rank: int = 0
    size: int = 1
    leader: int = 0
    on_host: int = 1
    mesh: DeviceMesh | None = None

    @property
    def is_leader(self) -> bool:
        """Whether this rank communicates with the node and writes checkpoints."""
        return self.rank == self.leader

    def deal(self, items: Sequence[T]) -> list[T]:
        """Return this rank's share of items that all ranks have in the same order: every ``size``-th one."""
        return list(items[self.rank :: self.size])

    def collected(self, dealt: Sequence[Sequence[T]]) -> list[T]:
        """Return the items of all ranks in the order in which they were before ``deal``."""
        count = sum(len(share) for share in dealt)
        return [dealt[index % self.size][index // self.size] for index in range(count)]

    def largest(self, value: int) -> int:
        """Return the largest of the ranks' values."""
        if self.size == 1:
            return value
        import torch.distributed as dist

        found = torch.tensor([value])
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
        return int(found)

    def totals(self, *values: float) -> tuple[float, ...]:
        """Return the sums of the ranks' values, in the order of the arguments."""
        if self.size == 1:
            return values
        import torch.distributed as dist

        found = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(found)
        return tuple(found.tolist())

    def broadcast(self, message: Any) -> Any:
        """Return the leader's message, plain values that CBOR can hold; what the others give is ignored."""
        if self.size == 1:
            return message
        body = bytearray(cbor2.dumps(message)) if self.is_leader else bytearray()
        length = self.broadcast_tensor(torch.tensor([len(body)]))
        data = (
            torch.frombuffer(body, dtype=torch.uint8) if body else torch.empty(int(length), dtype=torch.uint8)
        )
        return cbor2.loads(self.broadcast_tensor(data).numpy().tobytes())

    def broadcast_tensor(self, tensor: Tensor) -> Tensor:
        """Return the leader's tensor, written into this rank's one of equal shape and type, on the CPU."""
        if self.size > 1:
            import torch.distributed as dist

            dist.broadcast(tensor, src=self.leader)
        return tensor

    def exchange(self, message: Any) -> list[Any]:
        """Return the messages of all ranks, in the order of ranks; plain values that CBOR can hold."""
        if self.size == 1:
            return [message]
        import torch.distributed as dist

        body = bytearray(cbor2.dumps(message))
        width = self.largest(len(body))
        padded = torch.zeros(width, dtype=torch.uint8)
        padded[: len(body)] = torch.frombuffer(body, dtype=torch.uint8)
        bodies = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(bodies, padded)
        return [cbor2.loads(each.numpy().tobytes()) for each in bodies]


ALONE: Final = RankGroup()
"""The only rank of a learner of one process."""
