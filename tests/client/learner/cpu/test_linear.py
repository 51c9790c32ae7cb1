"""oneDNN linear layers against ``torch.nn.functional.linear``, with and without oneDNN's operators."""

import ctypes
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest
import torch
from support.gradients import gradient_of
from torch import Tensor, nn
from torch.profiler import ProfilerActivity

from sapo_client.learner.cpu import linear
from sapo_client.learner.cpu.linear import (
    MIN_ROWS,
    FastLinear,
    fast_linear,
    known_linear,
    prepacked_linear,
    use_fast_linear,
)


@pytest.fixture(params=[False, True], ids=["oneDNN", "MKL"])
def fastest(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test as on a processor with AVX-512, and as on one with AVX2 alone."""
    monkeypatch.setattr(linear, "_MKL_IS_FASTER", request.param)


on_both_processors = pytest.mark.usefixtures("fastest")


@on_both_processors
def test_a_fast_layer_equals_the_plain_one() -> None:
    torch.manual_seed(0)
    for inner, outer, bias in ((12, 40, True), (40, 12, False)):
        plain = nn.Linear(inner, outer, bias=bias)
        fast = nn.Linear(inner, outer, bias=bias)
        fast.load_state_dict(plain.state_dict())
        use_fast_linear(fast)
        assert isinstance(fast, FastLinear)
        assert fast.state_dict().keys() == plain.state_dict().keys()
        for rows in (1, MIN_ROWS - 1, MIN_ROWS, 200):
            x = torch.randn(rows, inner, requires_grad=True)
            twin = x.detach().clone().requires_grad_()
            found, expected = fast(x), plain(twin)
            assert torch.allclose(found, expected, atol=1e-5)
            torch.autograd.backward(found.square().sum())
            torch.autograd.backward(expected.square().sum())
            assert torch.allclose(gradient_of(x), gradient_of(twin), atol=1e-3)
            for name, parameter in plain.named_parameters():
                found, expected = gradient_of(fast.get_parameter(name)), gradient_of(parameter)
                assert torch.allclose(found, expected, rtol=1e-4, atol=1e-2)


@on_both_processors
@pytest.mark.parametrize("rows", [1, 80])
def test_a_prepacked_layer_equals_the_plain_one(rows: int) -> None:
    x, weight, bias = torch.randn(rows, 3, 8), torch.randn(16, 8), torch.randn(16)
    for given in (bias, None):
        expected = nn.functional.linear(x, weight, given)
        assert torch.allclose(prepacked_linear(weight, given)(x), expected, atol=1e-5)
    assert torch.equal(
        prepacked_linear(weight.double())(x.double()), nn.functional.linear(x.double(), weight.double())
    )


@on_both_processors
def test_other_precisions_are_computed_by_torch() -> None:
    x, weight = torch.randn(80, 8), torch.randn(16, 8)
    expected = nn.functional.linear(x.double(), weight.double())
    assert torch.equal(fast_linear(x.double(), weight.double()), expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert fast_linear(x, weight).dtype == torch.bfloat16


@on_both_processors
@pytest.mark.parametrize("has_onednn", [True, False])
@pytest.mark.parametrize("rows", [1, MIN_ROWS, 200])
def test_a_bfloat16_weight_is_multiplied_in_bfloat16(
    rows: int, has_onednn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inputs and results stay float32, and the results are those of PyTorch's product in bfloat16."""
    if not has_onednn:
        monkeypatch.setattr(linear, "_LINEAR_OP", None)
    torch.manual_seed(0)
    x, weight, bias = torch.randn(rows, 24), torch.randn(40, 24).bfloat16(), torch.randn(40).bfloat16()
    expected = nn.functional.linear(x.bfloat16(), weight, bias).float()
    leaf, residual = x.clone().requires_grad_(), torch.randn(rows, 40)
    products = {
        "prepacked": prepacked_linear(weight, bias)(x),
        "with a gradient": fast_linear(leaf, weight, bias),
        "with a residual": known_linear(x, (weight, bias), known=None, residual=residual.clone()) - residual,
    }
    for name, found in products.items():
        assert found.dtype == torch.float32, name
        assert torch.allclose(found, expected, rtol=1e-2, atol=1e-2), name
    torch.autograd.backward(products["with a gradient"].sum())
    assert torch.allclose(gradient_of(leaf), weight.float().sum(0).expand(rows, -1), rtol=2e-2, atol=2e-2)


@on_both_processors
@pytest.mark.parametrize("has_onednn", [True, False])
def test_the_gradients_of_a_known_product_of_bfloat16_weights(
    has_onednn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_onednn:
        monkeypatch.setattr(linear, "_LINEAR_OP", None)
    torch.manual_seed(0)
    x, weight, bias = (torch.randn(shape, requires_grad=True) for shape in ((80, 24), (40, 24), (40,)))
    known, factors = nn.functional.linear(x, weight, bias).detach(), torch.randn(80, 40)
    found = known_linear(x, (weight.bfloat16(), bias.bfloat16()), known=known)
    torch.autograd.backward((found * factors).sum())
    expected = (factors @ weight.detach(), factors.t() @ x.detach(), factors.sum(0))
    for leaf, wanted in zip((x, weight, bias), expected, strict=True):
        error = (gradient_of(leaf) - wanted).norm() / wanted.norm()
        assert 1e-6 < error < 0.01


@on_both_processors
@pytest.mark.parametrize("prepack", [None, linear._PREPACK_OP], ids=["refuses to prepack", "prepacks"])
def test_products_that_onednn_refuses_are_computed_by_torch(
    prepack: Callable[[Tensor, int], Tensor] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """oneDNN raises RuntimeError when it has no memory for a kernel."""

    def refuse(*_: object) -> Tensor:
        raise RuntimeError("could not create a primitive")

    monkeypatch.setattr(linear, "_LINEAR_OP", refuse)
    monkeypatch.setattr(linear, "_PREPACK_OP", prepack or refuse)
    x, weight = torch.randn(80, 8, requires_grad=True), torch.randn(16, 8)
    found = fast_linear(x, weight)
    assert torch.equal(found, nn.functional.linear(x, weight))
    assert torch.allclose(prepacked_linear(weight)(x), nn.functional.linear(x, weight), atol=1e-5)
    torch.autograd.backward(found.sum())
    assert torch.allclose(gradient_of(x), weight.sum(0).expand(80, -1), atol=1e-5)


@on_both_processors
@pytest.mark.parametrize("name", ["_LINEAR_OP", "_PREPACK_OP"])
def test_without_the_private_operators_torch_computes_everything(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch may remove either operator, for they are private."""
    monkeypatch.setattr(linear, name, None)
    layer = nn.Linear(8, 16)
    use_fast_linear(layer)
    assert type(layer) is nn.Linear
    x = torch.randn(80, 8, requires_grad=True)
    expected = nn.functional.linear(x, layer.weight, layer.bias)
    found = fast_linear(x, layer.weight, layer.bias)
    assert torch.equal(found, expected)
    assert torch.equal(prepacked_linear(layer.weight, layer.bias)(x), expected)
    assert torch.equal(torch.autograd.grad(found.sum(), x)[0], torch.autograd.grad(expected.sum(), x)[0])


def test_missing_torch_operators_are_detected_at_import() -> None:
    """A new interpreter whose torch lacks both operators imports the module and computes with torch."""
    script = """
        import torch
        from torch._ops import _OpNamespace

        class Without(_OpNamespace):
            def __getattr__(self, name):
                if name in ("_linear_pointwise", "_reorder_linear_weight"):
                    raise AttributeError(name)
                return super().__getattr__(name)

        torch.ops.mkldnn.__class__ = Without
        for name in ("_linear_pointwise", "_reorder_linear_weight"):
            torch.ops.mkldnn.__dict__.pop(name, None)
        from sapo_client.learner.cpu import linear

        x, weight = torch.randn(80, 8), torch.randn(16, 8)
        assert (linear._LINEAR_OP, linear._PREPACK_OP) == (None, None)
        assert torch.equal(linear.fast_linear(x, weight), torch.nn.functional.linear(x, weight))
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)


@pytest.mark.parametrize(("capability", "expected"), [("avx2", [False, True]), ("default", [True, True])])
@pytest.mark.skipif(not linear._HAS_MKL, reason="there is no choice")
def test_mkl_multiplies_float32_where_avx2_is_the_widest(capability: str, expected: list[bool]) -> None:
    script = """
        import torch
        from sapo_client.learner.cpu import linear

        weights = [torch.ones(2, 2, dtype=kind) for kind in (torch.float32, torch.bfloat16)]
        print([linear._is_multiplied(weight) for weight in weights])
    """
    environment = os.environ | {"ATEN_CPU_CAPABILITY": capability}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
    assert done.stdout == f"{expected}\n"


@on_both_processors
def test_a_frozen_weight_gets_no_gradient() -> None:
    layer = nn.Linear(8, 16).requires_grad_(False)
    use_fast_linear(layer)
    x = torch.randn(80, 8, requires_grad=True)
    torch.autograd.backward(layer(x).sum())
    assert (layer.weight.grad, layer.bias.grad) == (None, None)
    assert torch.allclose(gradient_of(x), layer.weight.sum(0).expand(80, -1), atol=1e-5)


KERNELS = """
    import ctypes
    import torch
    from sapo_client.learner.cpu import linear
    from sapo_client.learner.cpu.linear import fast_linear, use_fast_linear

    linear._MKL_IS_FASTER = False

    class Allocated(ctypes.Structure):  # mallinfo2 of glibc's malloc.h
        _fields_ = [(f"field_{index}", ctypes.c_size_t) for index in range(10)]

    def used():
        info = ctypes.CDLL(None).mallinfo2
        info.restype = Allocated
        return info().field_7  # uordblks: bytes that are in use

    use_fast_linear(torch.nn.Linear(64, 64))
    weight = torch.randn(64, 64)

    def compute(rows):
        for count in rows:
            fast_linear(torch.randn(count, 64), weight)
        return used()

    before = compute(range(40, 200))
    print(compute(range(200, 500)) - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the figure is glibc's")
def test_kernels_for_many_row_counts_do_not_grow_memory() -> None:
    """By default oneDNN keeps 1,024 of them: a learner grew by 400 MB within hours."""

    def growth(environment: dict[str, str]) -> int:
        command = [sys.executable, "-c", textwrap.dedent(KERNELS)]
        done = subprocess.run(
            command, capture_output=True, check=True, text=True, env=dict(os.environ) | environment
        )
        return int(done.stdout)

    assert growth({}) < 8_000_000
    assert growth(dict.fromkeys(linear._KERNEL_LIMITS, "1024")) > 30_000_000


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_the_last_position_of_each_sequence_is_multiplied_without_copies_of_the_weight(
    dtype: torch.dtype,
) -> None:
    """PyTorch copies a frozen one of bfloat16 for each sequence, 260 MiB at Qwen2.5-0.5B's size."""
    head = nn.Linear(256, 2**14, bias=False).to(dtype).requires_grad_(False)
    use_fast_linear(head)
    last = torch.randn(8, 5, 256).to(dtype)[:, -1:]
    head(last)
    with torch.profiler.profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profile:
        logits = head(last)
    assert logits.shape == (8, 1, 2**14)
    assert max(event.cpu_memory_usage for event in profile.events()) < head.weight.nbytes
