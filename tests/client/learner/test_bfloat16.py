"""Which processors compute bfloat16 products in hardware."""

import pytest

from sapo_client.learner.cpu.bfloat16 import CPUINFO, has_bfloat16

WITHOUT = "processor : 0\nmodel name : x\nflags\t\t: fpu sse2 avx512f avx512bw\n"
WITH = "processor : 1\nmodel name : x\nflags\t\t: fpu avx512f avx512_bf16 avx512bw\n"


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        (WITH, True),
        (WITH * 2, True),
        (WITHOUT, False),
        (WITH + WITHOUT, False),
        ("flags : amx_bf16 amx_tile\n", True),
        ("Features : fp asimd bf16 i8mm\n", True),
        ("Features : fp asimd\n", False),
        ("bugs : avx512_bf16\n", False),
        ("", False),
    ],
)
def test_bfloat16_needs_the_flag_on_every_core(
    cpuinfo: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
    assert has_bfloat16(cpuinfo) is expected


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("", True),
        ("DEFAULT", True),
        ("AVX512_CORE_BF16", True),
        ("AVX512_CORE_AMX", True),
        ("AVX10_1_512", True),
        ("AVX512_CORE_VNNI", False),
        ("avx2", False),
    ],
)
def test_bfloat16_needs_a_limit_of_onednn_that_includes_it(
    limit: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    assert has_bfloat16(WITH) is expected


def test_cpuinfo_of_this_machine_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
    text = CPUINFO.read_text("utf-8") if CPUINFO.exists() else ""
    assert has_bfloat16() is has_bfloat16(text)
