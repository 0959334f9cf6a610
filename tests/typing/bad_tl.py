"""Mistakes in an AHBM kernel, each with what mypy has to say of it."""

from pytest_kernbench.simulator.ahbm.tl import Pointer, Tl


def kernel(x: Pointer, out: Pointer, *, tl: Tl) -> None:
    h = tl.load(x, (8, 64))
    tl.lod(x, (8, 64))  # E: "Tl" has no attribute "lod"
    tl.load(x)  # E: Missing positional argument "shape"
    tl.load(h, (8, 64))  # E: Argument 1 to "load" of "Tl" has incompatible type "Handle"; expected "Pointer"
    tl.load(x, [8, 64])  # E: Argument 2 to "load" of "Tl" has incompatible type "list[int]"
    tl.load(x, (8, 64.0))  # E: "tuple[int, float]"
    tl.load(x, (8, 64), stride=(64, 1))  # E: Unexpected keyword argument "stride" for "load"
    tl.store(out, x)  # E: Argument 2 to "store" of "Tl" has incompatible type "Pointer"; expected "Handle"
    tl.exp(x)  # E: Argument 1 to "exp" of "Tl" has incompatible type "Pointer"; expected "Handle"
    tl.exp(2.0)  # E: Argument 1 to "exp" of "Tl" has incompatible type "float"; expected "Handle"
    tl.add(h)  # E: Missing positional argument "b"
    tl.add(h, h, h)  # E: Too many positional arguments for "add"
    tl.composite("conv", h, h)  # E: expected "Literal['gemm']"
    tl.composite("gemm", h, x)  # E: Argument 3 to "composite" of "Tl" has incompatible type "Pointer"
    tl.composite("gemm", h, h, epilogue=(("sigmoid",),))  # E: incompatible type
    tl.cast(h, "bf16")  # E: Argument 2 to "cast" of "Tl" has incompatible type "Literal['bf16']"
    tl.max(h, axis="rows")  # E: Argument "axis" to "max" of "Tl" has incompatible type "str"; expected "int"
    tl.recv("W")  # E: Missing positional argument "shape"
    tl.wait()  # E: All overload variants of "wait" of "Tl" require at least one argument
    tl.wait(7)  # E: No overload variant of "wait" of "Tl" matches argument type "int"
    -h  # E: Unsupported operand type for unary - ("Handle")
    h[0]  # E: Value of type "Handle" is not indexable
    h @ h  # E: Unsupported left operand type for @ ("Handle")
    h + x  # E: Unsupported operand types for + ("Handle" and "Pointer")
    x + 0.5  # E: Unsupported operand types for + ("Pointer" and "float")
    float(h)  # E: Argument 1 to "float" has incompatible type "Handle"
    with tl.region(1):  # E: Argument 1 to "region" of "Tl" has incompatible type "int"; expected "str"
        pass
