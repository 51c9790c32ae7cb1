"""Settings of glibc's allocator, in a new process, because earlier tests shape this one's heap."""

import platform
import subprocess
import sys
import textwrap

import pytest

from sapo_client.learner.cpu.allocator import SMALL_PARAMETERS

SCRIPT = """
    import resource
    import sys
    import torch
    from sapo_client.learner.cpu.allocator import tune_malloc

    def new_pages(elements):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(elements)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    if sys.argv[1] == "kept":
        tune_malloc(2**20, all_logits=False)
    new_pages(2**26 + 2**16)  # a little larger: glibc reuses a block only if alignment fits into it as well
    print(new_pages(2**26))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are glibc's")
def test_freed_memory_is_reused() -> None:
    """A quarter of a gigabyte is 65,536 pages (128 huge ones); by default the kernel provides them again."""

    def pages(setting: str) -> int:
        command = [sys.executable, "-c", textwrap.dedent(SCRIPT), setting]
        return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)

    assert pages("kept") < 100 < pages("default")


LAYERS = """
    import sys
    import torch
    from sapo_client.learner.cpu.allocator import tune_malloc

    def resident():
        lines = open("/proc/self/status").read().splitlines()
        return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("RssAnon:"))

    tune_malloc(int(sys.argv[1]), all_logits=sys.argv[2:] == ["all"])
    torch.ones(2**23)
    before, kept = resident(), []
    for _ in range(40):
        torch.ones(2**23)
        kept.append(torch.ones(2**18))
    print(resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are glibc's")
def test_the_layers_of_a_large_model_take_the_memory_of_one() -> None:
    """Forty blocks of 32 MiB, each freed before the next, and one MiB that stays after each."""

    def grown_mib(parameters: int, *logits: str) -> int:
        command = [sys.executable, "-c", textwrap.dedent(LAYERS), str(parameters), *logits]
        return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)

    assert grown_mib(SMALL_PARAMETERS) < 100
    assert grown_mib(SMALL_PARAMETERS - 1, "all") < 100
    # Where the kernel puts a heap decides whether freed blocks happen to fit: one process of a few is enough.
    assert any(grown_mib(SMALL_PARAMETERS - 1) > 100 for _ in range(8))
