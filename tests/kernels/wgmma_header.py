"""Writes cubridge/kernels/common/wgmma_sm90a.cuh and wgmma_backward_sm90a.cuh: one wrapper per wgmma shape, whose operand lists
nobody should type.

Run as a script to write the headers; test_wgmma_header.py fails when header and generator differ."""

import textwrap
from pathlib import Path

HEADER = Path(__file__).parents[2] / "cubridge/kernels/common/wgmma_sm90a.cuh"
BACKWARD = HEADER.with_name("wgmma_backward_sm90a.cuh")
WIDTHS = (64, 128)  # key tile sizes and head dims the kernels instantiate

PREFIX = """\
// Written by tests/kernels/wgmma_header.py: one wrapper per wgmma shape, for both half types (MMA_TYPES).
// A thread's accumulators are d[row][column]; the instruction wants them by groups of 8 columns, row, column.
#pragma once
"""


def accumulators(width: int) -> list[str]:
    """Accumulator operands of one thread in the instruction's order; `width` columns of the tile, 4 lanes a row."""
    return [f"d[{row}][{2 * group + column}]" for group in range(width // 8) for row in (0, 1) for column in (0, 1)]


def wrapped(text: str, indent: str) -> str:
    return textwrap.fill(text, 122, initial_indent=indent, subsequent_indent=indent, break_long_words=False)


def registers(first: int, count: int) -> str:
    return "{" + ", ".join(f"%{i}" for i in range(first, first + count)) + "}"


def quoted(text: str) -> str:
    """`text` as C string literals, broken at spaces."""
    lines = textwrap.wrap(text, 108, break_long_words=False)
    return "\n".join(f'        "{line} "' for line in lines)


def wrapper(width: int, kind: str) -> str:
    """The wrapper for A from shared memory (`ss`) or from registers (`rs`)."""
    operands = accumulators(width)
    count = len(operands)
    outputs = wrapped(", ".join(f'"+f"({name})' for name in operands), "           ").lstrip()
    instruction = f'        "wgmma.mma_async.sync.aligned.m64n{width}k16.f32." MMA_TYPES " "\n'
    if kind == "ss":
        comment = f"// d[64 x {width}] (+)= A[64 x 16] B[16 x {width}]; descriptors of shared memory, rows along k"
        signature = f"float (&d)[2][{count // 2}], u64 a, u64 b, int accumulate"
        inputs = '"l"(a), "l"(b), "r"(accumulate)'
        before = f'        "{{.reg .pred p; setp.ne.b32 p, %{count + 2}, 0; "\n'
        rest = quoted(f"{registers(0, count)}, %{count}, %{count + 1}, p, 1, 1, 0, 0;}}")
    else:
        comment = (
            f"// d[64 x {width}] += A[64 x 16] B[16 x {width}]; A in registers, B in shared memory with columns along k"
        )
        signature = f"float (&d)[2][{count // 2}], const u32 (&a)[4], u64 b"
        inputs = '"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)'
        before = ""
        rest = quoted(f"{registers(0, count)}, {registers(count, 4)}, %{count + 4}, 1, 1, 1, 1;")
    return (
        f"{comment}\nDEVICE void wgmma_k16_{kind}({signature}) {{\n    asm volatile(\n{before}{instruction}{rest}\n"
        f"        : {outputs}\n        : {inputs});\n}}\n"
    )


def header() -> str:
    return PREFIX + "".join(wrapper(width, kind) for width in WIDTHS for kind in ("ss", "rs"))


BACKWARD_PREFIX = """\
// Written by tests/kernels/wgmma_header.py: the shapes that a backward kernel needs besides those of wgmma_sm90a.cuh.
// `_new` begins a sum: its accumulators are outputs alone, so that no old value is kept alive beside a gemm in flight, which ptxas
// serialises. `tt` reads both operands transposed.
#pragma once
"""


def sum_wrapper(width: int, kind: str, new: bool) -> str:
    """The wrapper for both operands from shared memory, along k (`ss`) or across it (`tt`)."""
    operands = accumulators(width)
    count = len(operands)
    outputs = wrapped(", ".join(f'"{"=" if new else "+"}f"({name})' for name in operands), "           ").lstrip()
    where = "rows along k" if kind == "ss" else "A stored as [k][row], B as [k][column]"
    transposed = "0, 0" if kind == "ss" else "1, 1"
    rest = quoted(f"{registers(0, count)}, %{count}, %{count + 1}, p, 1, 1, {transposed};}}")
    sign, compare, name = ("=", "ne", "new") if new else ("+=", "eq", "add")
    return (
        f"// d[64 x {width}] {sign} A[64 x 16] B[16 x {width}]; descriptors of shared memory, {where}\n"
        f"DEVICE void wgmma_k16_{kind}_{name}(float (&d)[2][{count // 2}], u64 a, u64 b) {{\n    asm volatile(\n"
        f'        "{{.reg .pred p; setp.{compare}.b32 p, %{count + 2}, 0; "\n'
        f'        "wgmma.mma_async.sync.aligned.m64n{width}k16.f32." MMA_TYPES " "\n{rest}\n'
        f'        : {outputs}\n        : "l"(a), "l"(b), "r"(0));\n}}\n'
    )


def backward_header() -> str:
    shapes = ((64, "ss"), (32, "tt"), (64, "tt"))
    return BACKWARD_PREFIX + "".join(sum_wrapper(*shape, new) for shape in shapes for new in (True, False))


if __name__ == "__main__":
    HEADER.write_text(header())
    BACKWARD.write_text(backward_header())
