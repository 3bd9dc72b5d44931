"""The GPU tests of the trusted base. Each compares one test kernel with what the claims say; it names the rows that it covers."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from cubridge.backend.compile.headers import KERNELS_DIR, include_closure
from cubridge.backend.compile.nvrtc import NvrtcOutput, run_nvrtc
from cubridge.backend.compile.targets import target_for_device
from cubridge.backend.gpu.driver import checked, cuda_driver, encode_tensor_map, imported
from cubridge.backend.launch.device import TensorMapRequest
from cubridge.ir.functions import FUNCTIONS
from cubridge.ir.source import SourceFile

HERE: Final = Path(__file__).parent
HEAD_DIM: Final = 64
BLOCK_Q: Final = 128
BLOCK_KV: Final = 64
THREADS: Final = {"sm80": 128, "sm90a": 384, "backward": 384}
TARGETS: Final = {"sm80": "sm_80", "sm90a": "sm_90a", "backward": "sm_90a"}
"""Of the files of test kernels: one an architecture, and one of what backward kernels add."""
TILES: Final = {"backward": (64, 128)}
"""BLOCK_Q and BLOCK_KV where they are others."""
DTYPES: Final = ("bf16", "fp16")
SHARED_BYTES: Final = 64 << 10
_MAP: Final = 128


@dataclass(frozen=True, slots=True)
class TrustTest:
    """`covers`: names of lemmas, and instructions by the start of their text. `run(arch, dtype)` raises AssertionError."""

    name: str
    covers: tuple[str, ...]
    architectures: tuple[str, ...]
    run: Callable[[str, str], None]


# ---- launching -------------------------------------------------------------------------------------------------------


def compiled(arch: str, dtype: str, target: str | None = None) -> NvrtcOutput:
    """The test kernels of a file, for a target that may be newer; needs no GPU."""
    source = SourceFile(str(HERE / f"{arch}.cu"), (HERE / f"{arch}.cu").read_bytes())
    headers = include_closure(source, (KERNELS_DIR, HERE.parent))
    rows, keys = TILES.get(arch, (BLOCK_Q, BLOCK_KV))
    macros = {"HEAD_DIM": HEAD_DIM, "BLOCK_Q": rows, "BLOCK_KV": keys, "WARPS": 4, "STAGES": 2}
    options = [
        f"--gpu-architecture={target or TARGETS[arch]}",
        "--std=c++17",
        *(f"-D{n}={v}" for n, v in macros.items()),
    ]
    return run_nvrtc(f"{arch}.cu", source, headers, options + ["-DHALF_FP16=1"] * (dtype == "fp16"))


@cache
def _library(arch: str, dtype: str) -> Any:
    import torch

    target = target_for_device(TARGETS[arch], torch.cuda.get_device_capability())
    output = compiled(arch, dtype, target.name)
    assert output.cubin is not None, output.log
    core = imported("cuda.core")
    core.Device(0).set_current()
    return core.ObjectCode.from_cubin(output.cubin, name=arch)


def launch(arch: str, dtype: str, entry: str, args: bytes, grid: int = 1) -> None:
    import torch

    driver = cuda_driver()
    kernel = _library(arch, dtype).get_kernel(entry)
    function = checked("loading", driver.cuKernelGetFunction(driver.CUkernel(int(kernel.handle))))
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    checked("shared memory", driver.cuFuncSetAttribute(function, attribute, SHARED_BYTES + 4096))
    storage = ctypes.create_string_buffer(len(args) + 64)
    address = -(-ctypes.addressof(storage) // 64) * 64
    ctypes.memmove(address, args, len(args))
    pointers = (ctypes.c_void_p * 1)(address)
    stream = torch.cuda.current_stream().cuda_stream
    checked(
        f"launching {entry}",
        driver.cuLaunchKernel(
            function, grid, 1, 1, THREADS[arch], 1, 1, SHARED_BYTES + 4096, driver.CUstream(stream),
            ctypes.addressof(pointers), 0,
        ),
    )  # fmt: skip
    torch.cuda.synchronize()


@dataclass(slots=True)
class Args:
    """The `Args` of both files: tensors by their field, absent ones null."""

    q: Any = None
    k: Any = None
    v: Any = None
    out: Any = None
    x: Any = None
    y: Any = None
    z: Any = None
    w: Any = None
    v_out: Any = None
    i: Any = None
    j: Any = None
    strides: tuple[int, int, int] = (0, 0, 0)
    limit: float = 0.0
    n: int = 0
    b: int = 0
    h: int = 0
    heads: int = 0
    rows: int = 0
    row0: int = 0

    def pack(self, arch: str) -> bytes:
        numbers = struct.pack(
            "<3qf6i", *self.strides, self.limit, self.n, self.b, self.h, self.heads, self.rows, self.row0
        )
        if arch == "sm80":
            tensors = (self.q, self.k, self.v, self.out, self.x, self.y, self.z, self.w, self.v_out, self.i, self.j)
            return _pointers(tensors) + numbers
        _, keys = TILES.get(arch, (BLOCK_Q, BLOCK_KV))
        maps = b"".join(_map(t, rows) for t, rows in ((self.q, 64), (self.k, keys), (self.v, keys)))
        return maps + _pointers((self.out, self.x, self.y, self.z, self.w, self.v_out, self.i)) + numbers


def _pointers(tensors: Iterable[Any]) -> bytes:
    return b"".join(struct.pack("<Q", 0 if t is None else t.data_ptr()) for t in tensors)


def _map(tensor: Any, rows: int) -> bytes:
    if tensor is None:
        return bytes(_MAP)
    batch, heads, length, columns = tensor.shape
    strides = tuple(s * tensor.element_size() for s in (tensor.stride(2), tensor.stride(1), tensor.stride(0)))
    request = TensorMapRequest(tensor, (columns, length, heads, batch), strides, (64, rows, 1, 1), 128)
    return encode_tensor_map(request)


# ---- the tests -------------------------------------------------------------------------------------------------------


def _half(dtype: str) -> Any:
    import torch

    return torch.bfloat16 if dtype == "bf16" else torch.float16


def _nan(*shape: int) -> Any:
    import torch

    return torch.full(shape, torch.nan, device="cuda")


def check_gemms(arch: str, dtype: str) -> None:
    """Small integers, so that sums are exact; NaN behind the end of the rows, which must arrive as zeros."""
    import torch

    torch.manual_seed(0)
    batch, heads, length, row0 = 2, 3, 200, 96
    half = _half(dtype)
    memory = [torch.full((batch, heads, length + 40, HEAD_DIM), torch.nan, dtype=half, device="cuda") for _ in range(3)]
    q, k, v = (m[:, :, :length] for m in memory)
    for tensor in (q, k, v):
        tensor.copy_(torch.randint(-2, 3, tensor.shape, device="cuda"))
    o = torch.randint(-8, 9, (BLOCK_Q, HEAD_DIM), device="cuda").float()
    s_out, o_out = _nan(BLOCK_Q, BLOCK_KV), _nan(BLOCK_Q, HEAD_DIM)
    args = Args(q=q, k=k, v=v, x=o, y=s_out, z=o_out, b=1, h=2, heads=heads, rows=length, row0=row0)
    args.strides = (q.stride(0), q.stride(1), q.stride(2))
    launch(arch, dtype, "gemms", args.pack(arch))
    tiles = [torch.zeros(n, HEAD_DIM, dtype=torch.float64, device="cuda") for n in (BLOCK_Q, BLOCK_KV, BLOCK_KV)]
    for tile, tensor in zip(tiles, (q, k, v), strict=True):
        rows = tensor[1, 2, row0 : row0 + len(tile)].double()
        tile[: len(rows)] = rows
    scores = tiles[0] @ tiles[1].T
    assert torch.equal(s_out.double(), scores), "scores"
    weights = scores.to(half).double()
    assert torch.equal(o_out.double(), o.double() + weights @ tiles[2]), "outputs"


def check_rows(arch: str, dtype: str) -> None:
    import torch

    torch.manual_seed(1)
    x = torch.randint(-1000, 1000, (BLOCK_Q, BLOCK_KV), device="cuda").float()
    x[37, 5] = 5000.0
    top, part, whole, some = _nan(BLOCK_Q, 4), _nan(BLOCK_Q, 4), _nan(BLOCK_Q, 4), _nan(BLOCK_Q)
    launch(arch, dtype, "rows", Args(x=x, y=top, z=part, w=whole, v_out=some, limit=4000.0).pack(arch))
    assert torch.equal(top, x.max(1).values[:, None].expand(-1, 4)), "row_max"
    own = x.view(BLOCK_Q, BLOCK_KV // 8, 4, 2).sum((1, 3))
    assert torch.equal(part, own), "partial_row_sum"
    assert torch.equal(whole, x.sum(1)[:, None].expand(-1, 4)), "add_lanes"
    voted = torch.zeros(BLOCK_Q, device="cuda")
    warp = 32 if arch == "sm80" else 16
    voted[37 // warp * warp : 37 // warp * warp + warp] = 1.0
    assert torch.equal(some, voted), "any_lane"


def check_columns(arch: str, dtype: str) -> None:
    import torch

    places, numbers = _nan(BLOCK_Q, BLOCK_KV), _nan(BLOCK_Q, BLOCK_KV)
    launch(arch, dtype, "columns", Args(y=places, z=numbers, n=8_000_000).pack(arch))
    rows, columns = torch.arange(BLOCK_Q, device="cuda"), torch.arange(BLOCK_KV, device="cuda")
    assert torch.equal(places, (rows[:, None] * 1024 + columns).float()), "every element has one place"
    assert torch.equal(numbers, (columns + 8_000_000).float().expand(BLOCK_Q, -1)), "frag_col_f32"


def check_stores(arch: str, dtype: str) -> None:
    """Rows past the end and everything outside the head stay as they are."""
    import torch

    torch.manual_seed(2)
    batch, heads, length, row0 = 2, 3, 150, 64
    half = _half(dtype)
    x = torch.randn(BLOCK_Q, HEAD_DIM, device="cuda")
    y = torch.randn(BLOCK_Q, device="cuda")
    for given in (0, 1):
        out = torch.full((batch, length + 7, heads, HEAD_DIM), 3.0, dtype=half, device="cuda").transpose(1, 2)
        lse = torch.full((batch, heads, length), 3.0, device="cuda")
        wanted, wanted_lse = out.clone(), lse.clone()
        args = Args(out=out, x=x, y=y, z=lse, n=given, b=1, h=1, heads=heads, rows=length, row0=row0)
        args.strides = (out.stride(0), out.stride(1), out.stride(2))
        launch(arch, dtype, "stores", args.pack(arch))
        kept = length - row0
        wanted[1, 1, row0:length] = x[:kept].to(half) if given else 0.0
        wanted_lse[1, 1, row0:] = y[:kept]
        assert torch.equal(out, wanted), "store_tile"
        assert torch.equal(lse, wanted_lse), "store_rows"


def check_staged(arch: str, dtype: str) -> None:
    """Rows past the end and everything outside the head stay as they are."""
    import torch

    torch.manual_seed(4)
    batch, heads, length, row0 = 2, 3, 150, 64
    half = _half(dtype)
    x = torch.randn(BLOCK_Q, HEAD_DIM, device="cuda")
    out = torch.full((batch, length + 7, heads, HEAD_DIM), 3.0, dtype=half, device="cuda").transpose(1, 2)
    wanted = out.clone()
    launch(arch, dtype, "staged", Args(q=out[:, :, :length], x=x, b=1, h=1, row0=row0).pack(arch))
    wanted[1, 1, row0:length] = x[: length - row0].to(half)
    assert torch.equal(out, wanted), "stage_tile, store_tile_async"


def check_scalars(arch: str, dtype: str) -> None:
    import torch

    values = [*range(-9, 10), -(2**20) - 1, 2**20 + 3]
    pairs = [(x, y) for x in values for y in values]
    given = torch.tensor(pairs, dtype=torch.int32, device="cuda")
    found = torch.full((len(pairs), 8), -77, dtype=torch.int32, device="cuda")
    launch(arch, dtype, "scalars", Args(i=found, j=given, n=len(pairs)).pack(arch))
    for (x, y), row in zip(pairs, found.tolist(), strict=True):
        quotient, remainder = (x // y, x % y) if y else (0, 0)
        wanted = [min(x, y), max(x, y), abs(x), quotient, remainder, -(-x // y) if y > 0 else 0, min(x, y)]
        assert row[:7] == wanted, (x, y, row, wanted)


def check_functions(arch: str, dtype: str) -> None:
    """Errors within what CuIR's table of functions declares."""
    import torch

    x = torch.cat([torch.linspace(0.01, 8.0, 4000), torch.logspace(-6, 6, 4000)]).float().cuda()
    x[:4000] -= 4.0
    y = _nan(len(x), 5)
    launch(arch, dtype, "functions", Args(x=x, y=y, n=len(x)).pack(arch))
    wide = x.double()
    unit = torch.log1p(wide.where((wide >= 0) & (wide <= 1), torch.nan))
    wanted = {
        "exp2": torch.exp2(wide), "log2": torch.log2(wide), "tanh_approx": torch.tanh(wide), "rcp": 1.0 / wide,
        "log1p_unit": unit,
    }  # fmt: skip
    for at, (name, exact) in enumerate(wanted.items()):
        normal = exact.isfinite() & (exact.abs() > 2.0**-126) & (exact.abs() < 2.0**126)
        declared = FUNCTIONS[name].abs_error + FUNCTIONS[name].rel_error * exact.abs()
        excess = ((y[:, at].double() - exact).abs() / declared)[normal].max().item()
        assert excess <= 1.0, f"{name}: {excess:.3g} times its declared error"


def check_order(arch: str, dtype: str) -> None:
    import torch

    found = torch.full((THREADS[arch] + 8,), -1, dtype=torch.int32, device="cuda")
    launch(arch, dtype, "order", Args(i=found).pack(arch))
    threads = torch.arange(THREADS[arch], device="cuda") // 128
    assert torch.equal(found[:-8].long(), threads * 1000 + threads), "warpgroup_index, consumer_index"
    assert found[-8:].tolist()[:6] == [7, 256, 256, 10, 5, 6], found[-8:].tolist()


def check_counters(arch: str, dtype: str) -> None:
    import torch

    blocks = 500
    found = torch.zeros(2 + blocks, dtype=torch.int32, device="cuda")
    for launches in (1, 2):
        launch(arch, dtype, "counters", Args(i=found).pack(arch), grid=blocks)
        assert found[:2].tolist() == [0, 0], "counters are left zero"
        assert torch.equal(found[2:], torch.full((blocks,), launches, dtype=torch.int32, device="cuda")), (
            "one number each"
        )


def check_backward(arch: str, dtype: str) -> None:
    """One step of one key tile and one query tile, in small integers, so that sums are exact. Rows end inside of the tiles; what is
    past the end arrives as zeros, or as the number that is given, and is not written."""
    import torch

    torch.manual_seed(3)
    (rows, keys), batch, heads, length, row0, tile = TILES[arch], 2, 3, 100, 64, 3
    half, kept = _half(dtype), length - row0
    q, k = (torch.randint(-2, 3, (batch, heads, length, HEAD_DIM), device="cuda").to(half) for _ in range(2))
    numbers = torch.randint(-8, 9, (batch, heads, length), device="cuda").float()
    squares, ordered = _nan(rows, 4), _nan(rows)
    sums = torch.full((tile + 1, 2, rows, HEAD_DIM // 2), 5.0, device="cuda")
    args = Args(
        out=q, x=numbers, y=ordered, z=squares, w=sums, limit=7.0, n=tile, b=1, h=2, heads=heads, rows=length, row0=row0
    )
    args.strides = (q.stride(0), q.stride(1), q.stride(2))
    launch(arch, dtype, "before", args.pack(arch))
    tail = torch.zeros(rows, HEAD_DIM, dtype=torch.float64, device="cuda")
    tail[:kept] = q[1, 2, row0:].double()
    assert torch.equal(squares.double(), (tail * tail).sum(1)[:, None].expand(-1, 4)), "dot_rows"
    assert sums[tile].eq(0).all() and sums[:tile].eq(5).all(), "clear_part"

    key_tile = torch.zeros(keys, HEAD_DIM, dtype=torch.float64, device="cuda")
    key_tile[:kept] = k[1, 2, row0:].double()
    d = torch.randint(-8, 9, (keys, HEAD_DIM), device="cuda").float()
    scores, before = _nan(keys, rows), d.double()
    step = Args(q=q, k=k, x=d, y=ordered, z=scores, w=sums, n=tile, b=1, h=2, row0=row0)
    launch(arch, dtype, "step", step.pack(arch))
    column = torch.full((rows,), 7.0, dtype=torch.float64, device="cuda")
    column[:kept] = numbers[1, 2, row0:].double()
    wanted = key_tile @ tail.T + column
    assert torch.equal(scores.double(), wanted), "scores, and numbers of columns"
    weights = wanted.to(half).double()
    assert torch.equal(d.double(), before + weights @ tail), "gemm_queries_async"

    out = torch.full_like(q, 3.0)
    args = Args(out=out, w=sums, limit=0.5, n=tile, b=1, h=2, heads=heads, rows=length, row0=row0, strides=args.strides)
    launch(arch, dtype, "after", args.pack(arch))
    expected = torch.full_like(q, 3.0)
    expected[1, 2, row0:] = (weights.T @ key_tile)[:kept].to(half)
    assert torch.equal(out, expected), "the sum of two copies, halved"


BOTH: Final = ("sm80", "sm90a")
TESTS: Final[Sequence[TrustTest]] = (
    TrustTest(
        "gemms",
        (
            "SharedTile", "ProbTile", "HeadView", "head_view", "load_tile_async", "gemm_qk", "gemm_pv", "gemm_qk_async",
            "gemm_pv_async", "cast_probs", "frag_row", "frag_col", "TensorMap", "Barrier", "SHARED_TILES", "cp.async.commit_group",
            "cp.async.wait_group", "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group", "mbarrier.init", "fence.mbarrier_init",
            "mbarrier.arrive.expect_tx", "{ .reg .pred $0; $1: mbarrier.try_wait", "setmaxnreg.dec", "setmaxnreg.inc",
        ),
        BOTH, check_gemms,
    ),
    TrustTest("rows", ("row_max", "partial_row_sum", "add_lanes", "any_lane"), BOTH, check_rows),
    TrustTest("columns", ("frag_row", "frag_col", "frag_col_f32"), BOTH, check_columns),
    TrustTest(
        "stores", ("OutputView", "RowView", "head_view", "row_view", "store_tile", "store_rows", "zero"), BOTH, check_stores
    ),
    TrustTest(
        "staged",
        (
            "stage_tile", "store_tile_async", "fence.proxy.async", "cp.async.bulk.commit_group", "cp.async.bulk.wait_group",
            "bar.sync",
        ),
        ("sm90a",), check_staged,
    ),
    TrustTest(
        "scalars", ("imin", "imax", "iabs", "ceil_div", "floor_div", "floor_mod", "select"), ("sm80",), check_scalars
    ),
    TrustTest("functions", ("ex2.approx", "lg2.approx", "tanh.approx", "rcp.approx", "log1p_unit"), ("sm80",), check_functions),
    TrustTest(
        "order",
        (
            "warpgroup_index", "consumer_index", "Ring", "Barrier", "mbarrier.init", "mbarrier.arrive.shared",
            "{ .reg .pred $0; $1: mbarrier.try_wait", "bar.sync", "bar.arrive",
        ),
        ("sm90a",), check_order,
    ),
    TrustTest("counters", ("finish_counters",), ("sm90a",), check_counters),
    TrustTest(
        "backward",
        (
            "SharedRow", "SharedPart", "OperandTile", "warpgroup_row", "dq_part", "load_row_async", "read_columns",
            "gemm_keys_async", "gemm_queries_async", "gemm_dq_async", "cast_tile", "store_operand", "store_part",
            "reduce_part_async", "scale", "dot_rows", "load_rows", "store_row_values", "clear_part", "load_part",
            "store_part_rows", "fence.proxy.async", "cp.async.bulk.commit_group", "cp.async.bulk.wait_group",
        ),
        ("backward",), check_backward,
    ),
)  # fmt: skip


def main() -> int:
    """Runs every test on the GPU of this machine; 1 if one fails."""
    bad = 0
    for test in TESTS:
        for arch in test.architectures:
            for dtype in DTYPES:
                try:
                    test.run(arch, dtype)
                    verdict = "holds"
                except AssertionError as error:
                    verdict, bad = f"FAILS: {error}", bad + 1
                print(f"{test.name:10} {arch:6} {dtype}: {verdict}", flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    raise SystemExit(main())
