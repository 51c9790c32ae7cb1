"""Settings of glibc's allocator."""

import resource

import torch

from sapo_client.learner.cpu.allocator import keep_freed_memory


def test_freed_memory_is_reused() -> None:
    """A quarter of a gigabyte is 65,536 pages; the kernel provides them once.

    The first block is a little larger: glibc reuses a free block only if alignment fits into it as well.
    """
    keep_freed_memory()

    def new_pages(elements: int) -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(elements)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    new_pages(2**26 + 2**16)
    assert new_pages(2**26) < 1000
