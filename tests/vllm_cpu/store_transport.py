"""Plugin of vLLM that sends weights through its own store, where there is no NCCL.

Everything else of a transfer stays vLLM's: the trainer's engine, its requests to the server, the packed
buffers and the loading by the workers. vLLM calls ``register`` in each of its processes; the trainer's calls
it, too.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

import torch

DISTRIBUTION: Final = "sapo_store_transport-0.dist-info"


class StoreGroup:
    """What is used of ``PyNcclCommunicator``: a broadcast of the trainer's tensor."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def broadcast(self, tensor: torch.Tensor, src: int, stream: object = None) -> None:
        """Send the tensor, or write the received one into it."""
        received = self._group.broadcast(tensor, src)
        if received is not tensor:
            tensor.copy_(received)

    def destroy(self) -> None:
        """Nothing is held."""


class Stream:
    """In place of a stream of a GPU."""

    def synchronize(self) -> None:
        """Everything has been computed."""


def register() -> None:
    """Put the store in NCCL's place in this process."""
    from vllm.distributed.utils import StatelessProcessGroup
    from vllm.distributed.weight_transfer import nccl_common, packed_tensor

    def group(master_address: str, master_port: int, rank: int, world_size: int, device: int) -> StoreGroup:
        store = StatelessProcessGroup.create(
            host=master_address, port=master_port, rank=rank, world_size=world_size
        )
        return StoreGroup(store)

    def streams(device: int, buffers: int) -> tuple[Stream, ...]:
        return tuple(Stream() for _ in range(buffers))

    def current(stream: Stream) -> AbstractContextManager[None]:
        return nullcontext()

    nccl_common.stateless_init_process_group = group
    packed_tensor._get_streams = streams
    torch.cuda.stream = current  # type: ignore[assignment]  # a class there
    torch.accelerator.current_device_index = lambda: 0


def install(folder: Path) -> None:
    """Write what makes vLLM's processes call ``register`` if the folder is in their search path."""
    metadata = folder / DISTRIBUTION
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: sapo-store-transport\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text(
        "[vllm.general_plugins]\nstore_transport = store_transport:register\n"
    )
    (folder / "store_transport.py").write_text(Path(__file__).read_text())
