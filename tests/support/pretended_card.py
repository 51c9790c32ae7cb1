"""A pretended CUDA device: tensors of the CPU that say they are on ``cuda:0``, and refuse others beside them.

PyTorch for CPUs knows no CUDA device, so that code for one cannot even be started there. Within
``pretended_card`` it runs, with real values, gradients and optimizers, and tensors of the two devices in one
operation raise as they do on a card. What only a card has is not seen: its kernels, its memory, its timing.

The device is ``cpu:7`` to PyTorch, which passes a CPU's number on without a look at it; ``Tensor.device`` and
what takes a device translate it. Autocast is the CPU's, which casts the same products.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

CARD: Final = torch.device("cuda", 0)
MEMORY: Final = 24 * 2**30

_INSIDE: Final = torch.device("cpu", 7)
_HOST: Final = torch.device("cpu")

_COPIES: Final = frozenset({"aten::_to_copy", "aten::copy_", "aten::_copy_from"})
"""Operators that take tensors of two devices."""

_INDEXED: Final = frozenset({"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"})
"""Operators whose indices may be the host's."""


class CardTensor(Tensor):
    """Tensor of the pretended device; ``held`` are its values, a plain tensor."""

    held: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> CardTensor:
        made: CardTensor = Tensor._make_wrapper_subclass(
            cls,
            values.shape,
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            device=_INSIDE,
            requires_grad=False,
        )
        made.held = values
        return made

    device = property(lambda _: CARD)
    is_cuda = property(lambda _: True)
    is_cpu = property(lambda _: False)

    def untyped_storage(self) -> torch.UntypedStorage:
        """Return the storage of the values, which has an address."""
        return self.held.untyped_storage()

    def data_ptr(self) -> int:
        """Return the address of the values."""
        return self.held.data_ptr()

    def tolist(self) -> Any:
        """Return the values as Python has them."""
        return self.held.tolist()

    def __format__(self, spec: str) -> str:
        """Return a single value in a form, or the tensor in words."""
        return format(self.item(), spec) if not self.ndim else object.__format__(self, spec)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """Return a leaf with a copy of the values."""
        if id(self) not in memo:
            copied: Tensor = CardTensor(self.held.detach().clone())
            if isinstance(self, torch.nn.Parameter):
                copied = torch.nn.Parameter(copied, self.requires_grad)
            memo[id(self)] = copied
        found: Tensor = memo[id(self)]
        return found

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # PyTorch declares it without an annotation
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operator outside of ``pretended_card``, too, as where tensors are printed at its end."""
        return _run(func, args, dict(kwargs or {}))


class CardGenerator(torch.Generator):
    """Random numbers of the pretended device, or of the host."""

    on_card: bool

    def __new__(cls, device: Any = "cpu") -> CardGenerator:
        made: CardGenerator = super().__new__(cls)
        made.on_card = torch.device(device).type == "cuda"
        return made

    def __init__(self, device: Any = "cpu") -> None:
        """Do nothing more."""


class _Dispatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs operators that create tensors on the pretended device."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return _run(func, args, dict(kwargs or {}))


class _Functions(TorchFunctionMode):
    """Translates the device's name for PyTorch."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.device:
            return func(*args, **dict(kwargs or {}))
        named = tree_map(_inside, dict(kwargs or {}))
        generator = named.get("generator")  # an operator gets another object for it
        if isinstance(generator, CardGenerator):
            on_card = named.get("device") == _INSIDE or any(
                isinstance(each, CardTensor) for each in tree_leaves(args)
            )
            if generator.on_card is not on_card:
                raise RuntimeError(f"Expected a generator of the tensors' device: {func.__name__}")
        if func in (torch.tensor, torch.as_tensor) and named.get("device") == _INSIDE:
            # it copies values without asking a mode
            return func(*args, **{**named, "device": _HOST}).to(_INSIDE)
        return func(*tree_map(_inside, args), **named)


def _inside(value: Any) -> Any:
    """Return PyTorch's device in place of the pretended one."""
    if isinstance(value, torch.device) and value.type == "cuda":
        return _INSIDE
    return _INSIDE if isinstance(value, str) and value in ("cuda", "cuda:0") else value


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator on the values, if its tensors are on one device."""
    asked = kwargs.get("device")
    is_card = _common_device(func, args, kwargs) if asked is None else asked == _INSIDE
    if asked == _INSIDE:
        kwargs["device"] = _HOST
    kernel = _KERNELS.get(func, func)
    found = kernel(*tree_map(_values, args), **tree_map(_values, kwargs))
    if not is_card:
        return found
    wrapped = tree_map(lambda each: CardTensor(each) if type(each) is Tensor else each, found)
    if any(isinstance(each, CardTensor) for each in tree_leaves((args, kwargs))):
        return return_and_correct_aliasing(func, args, kwargs, wrapped)  # type: ignore[no-untyped-call]
    return wrapped


def _common_device(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether an operator's tensors are the card's.

    Raises:
        RuntimeError: some are, and others with a dimension are the host's.
    """
    name = func._schema.name
    tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
    if name in _COPIES:
        return isinstance(tensors[0], CardTensor)
    if name in _INDEXED:
        indices = {id(each) for each in tree_leaves(args[1]) if isinstance(each, Tensor)}
        if isinstance(args[0], CardTensor):
            tensors = [each for each in tensors if id(each) not in indices]
    on_card = [each for each in tensors if isinstance(each, CardTensor)]
    on_host = [each for each in tensors if not isinstance(each, CardTensor)]
    if on_card and any(each.ndim for each in on_host):
        shapes = [(tuple(each.shape), str(each.device)) for each in tensors]
        raise RuntimeError(f"Expected all tensors to be on the same device: {name} of {shapes}")
    return bool(on_card)


def _product(left: Tensor, right: Tensor, out_dtype: torch.dtype) -> Tensor:
    """Return a product with a type of its own, as only a card has it."""
    return left.to(out_dtype) @ right.to(out_dtype)


def _counts(values: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Return a histogram of whole numbers, which a card has without a detour."""
    found: Tensor = torch.ops.aten.histc.default(values.float(), *args, **kwargs)
    return found.to(values.dtype)


_KERNELS: Final[dict[Any, Any]] = {torch.ops.aten.mm.dtype: _product, torch.ops.aten.histc.default: _counts}


def _values(each: Any) -> Any:
    return each.held if isinstance(each, CardTensor) else each


class _Autocast(torch.autocast):
    """Autocast of the pretended device is the CPU's."""

    def __init__(self, device_type: str, *args: Any, **kwargs: Any) -> None:
        super().__init__("cpu" if device_type == "cuda" else device_type, *args, **kwargs)


@contextmanager
def pretended_card(capability: tuple[int, int] = (8, 0)) -> Iterator[None]:
    """Let PyTorch see one CUDA device of a compute capability, in this thread and in those started within."""
    run = threading.Thread.run

    def run_inside(thread: threading.Thread) -> None:
        with _Functions(), _Dispatch():  # type: ignore[no-untyped-call]
            run(thread)

    enabled, kind = torch.is_autocast_enabled, torch.get_autocast_dtype
    replaced = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_capability": lambda *_: capability,
        "get_device_name": lambda *_: "pretended",
        "get_arch_list": lambda: ["sm_75", "sm_80"],
        "is_bf16_supported": lambda *_: capability >= (8, 0),
        "mem_get_info": lambda *_: (MEMORY, MEMORY),
        "empty_cache": lambda: None,
        "synchronize": lambda *_: None,
        "get_rng_state": lambda *_: torch.empty(0, dtype=torch.uint8),
        "set_rng_state": lambda *_: None,
    }
    with ExitStack() as stack:
        for name, function in replaced.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, function))
        of_torch = {
            "autocast": _Autocast,
            "Generator": CardGenerator,
            "is_autocast_enabled": lambda *of: enabled("cpu") if of == ("cuda",) else enabled(*of),
            "get_autocast_dtype": lambda of: kind("cpu" if of == "cuda" else of),
        }
        for name, value in of_torch.items():
            stack.enter_context(mock.patch.object(torch, name, value))
        # a tensor of a class of ours cannot be one of inference mode
        for name in ("__enter__", "__exit__"):
            method = getattr(torch.no_grad, name)
            stack.enter_context(mock.patch.object(torch.inference_mode, name, method))
        stack.enter_context(mock.patch.object(threading.Thread, "run", run_inside))
        future = torch.__future__
        before = future.get_overwrite_module_params_on_conversion()
        future.set_overwrite_module_params_on_conversion(True)  # else a module's parameters keep their class
        stack.callback(future.set_overwrite_module_params_on_conversion, before)
        stack.enter_context(_Functions())
        stack.enter_context(_Dispatch())  # type: ignore[no-untyped-call]
        yield
