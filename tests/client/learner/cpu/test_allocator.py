"""Settings of glibc's allocator, in a new process, because earlier tests shape this one's heap."""

import platform
import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
    import resource
    import sys
    import torch
    from sapo_client.learner.cpu.allocator import keep_freed_memory

    def new_pages(elements):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(elements)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    if sys.argv[1] == "kept":
        keep_freed_memory()
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
