"""Settings of glibc's allocator, in a new process, because earlier tests shape this one's heap."""

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


@pytest.mark.parametrize(("setting", "reused"), [("kept", True), ("default", False)])
def test_freed_memory_is_reused(setting, reused):
    """A quarter of a gigabyte is 65,536 pages; without the setting the kernel provides them again."""
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), setting]
    pages = int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert (pages < 1000) == reused
