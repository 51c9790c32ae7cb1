"""A stranger's manifest: its settings are run to see whether this installation derives the same tasks."""

import json
import sys
from dataclasses import replace

import pytest

from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Digest
from sapo_protocol.suite import Family, Suite, canonical_json
from sapo_verification.suites.catalogue import REASONING_GYM, check_suite, family


def with_settings(name: str, **settings: object) -> Family:
    """Return a family of the catalogue with other values of settings that it has."""
    each = family(name, "full")
    return replace(each, config=canonical_json({**json.loads(each.config), **settings}))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not count a process's data")
def test_tasks_that_need_much_memory_are_refused_before_they_take_it() -> None:
    """A table of that many numbers takes 1.6 GB, and one digit more in the manifest ten times as much."""
    chosen = (with_settings("count_primes", max_n=200_000_000),)
    with pytest.raises(LocalProtocolError) as refused:
        check_suite(Suite(REASONING_GYM, chosen, Digest(bytes(32))))
    assert str(refused.value) == (
        "the checker process failed: tasks with the suite's settings need more than 1024 MiB of memory"
    )
