"""The words of CUDA that lifting starts from: instructions, built-in functions and coordinates, each with its CuIR meaning.

Nothing here is known by the name of a wrapper: a wrapper means what the one instruction inside it means. Tile helpers are in
`lemmas.toml`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from cubridge.ir.functions import FUNCTIONS


@dataclass(frozen=True, slots=True)
class Instruction:
    """A PTX instruction: the operation `op` of CuIR with these asm operands, in order, or, if it has a result, the function
    `op` of them. `volatile`, `memory`: what the asm must say, or the compiler may move it."""

    op: str
    operands: tuple[int, ...] = ()
    result: int | None = None
    volatile: bool = True
    memory: bool = True
    claims: str = ""


def _function(name: str) -> Instruction:
    return Instruction(
        name, (1,), result=0, volatile=False, memory=False, claims=f"one MUFU operation, CuIR's `{name}`"
    )


INSTRUCTIONS: Final[dict[str, Instruction]] = {
    "cp.async.commit_group;": Instruction("commit", claims="closes the open cp.async group of this thread"),
    "cp.async.wait_group %0;": Instruction(
        "wait_group", (0,), claims="at most %0 cp.async groups of this thread are in flight"
    ),
    "wgmma.fence.sync.aligned;": Instruction("wgmma_fence", claims="register accesses before it precede later wgmma"),
    "wgmma.commit_group.sync.aligned;": Instruction("wgmma_commit", claims="closes the open wgmma group"),
    "wgmma.wait_group.sync.aligned %0;": Instruction(
        "wgmma_wait", (0,), claims="at most %0 wgmma groups are in flight"
    ),
    "mbarrier.init.shared::cta.b64 [%0], %1;": Instruction("barrier_init", (0, 1), claims="a phase takes %1 arrivals"),
    "fence.mbarrier_init.release.cluster;": Instruction(
        "barrier_init_fence", claims="the async proxy sees initialised barriers"
    ),
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;": Instruction(
        "barrier_expect", (0, 1), claims="one arrival; the phase also waits for %1 bytes"
    ),
    "mbarrier.arrive.shared::cta.b64 _, [%0];": Instruction("barrier_arrive", (0,), claims="one arrival a thread"),
    "{ .reg .pred $0; $1: mbarrier.try_wait.parity.shared::cta.b64 $0, [%0], %1; @$0 bra $2; bra $1; $2: }": Instruction(
        "barrier_wait", (0, 1), claims="returns when the phase of parity %1 has ended"
    ),
    "setmaxnreg.dec.sync.aligned.u32 %0;": Instruction(
        "registers_release", (0,), memory=False, claims="budget becomes %0"
    ),
    "setmaxnreg.inc.sync.aligned.u32 %0;": Instruction(
        "registers_take", (0,), memory=False, claims="budget becomes %0"
    ),
    "fence.proxy.async.shared::cta;": Instruction(
        "async_proxy_fence",
        claims="asynchronous reads after a meeting see this thread's earlier writes of shared memory",
    ),
    "cp.async.bulk.commit_group;": Instruction("bulk_commit", claims="closes the open bulk group of this thread"),
    "cp.async.bulk.wait_group.read %0;": Instruction(
        "bulk_wait_read", (0,), claims="at most %0 bulk groups of this thread still read shared memory"
    ),
    "bar.sync %0, %1;": Instruction("named_sync", (0, 1), claims="arrives and waits for %1 threads"),
    "bar.arrive %0, %1;": Instruction("named_arrive", (0, 1), claims="arrives and goes on"),
    "ex2.approx.ftz.f32 %0, %1;": _function("exp2"),
    "lg2.approx.ftz.f32 %0, %1;": _function("log2"),
    "tanh.approx.f32 %0, %1;": _function("tanh_approx"),
    "rcp.approx.ftz.f32 %0, %1;": _function("rcp"),
}
"""By the normal form of their text, `normal_ptx`."""

BUILTIN_STATEMENTS: Final[dict[str, str]] = {"__syncthreads": "block_sync"}

BUILTIN_FUNCTIONS: Final[dict[str, str]] = {
    "max": "maximum", "min": "minimum", "abs": "abs",
    **{f.cuda: name for name, f in FUNCTIONS.items() if f.cuda is not None and f.cuda.endswith("f")},
}  # fmt: skip
"""Of CUDA's own library, elementwise."""

COORDINATES: Final[dict[tuple[str, str], str]] = {
    ("threadIdx", "x"): "thread", ("blockIdx", "x"): "block_x", ("blockIdx", "y"): "block_y", ("blockIdx", "z"): "block_z",
    ("gridDim", "x"): "grid_x",
}  # fmt: skip

NUMBERS: Final[dict[str, str]] = {"INFINITY": "inf", "NAN": "nan"}
"""Names of CUDA's headers for values that CuIR names."""

_PREDICATE: Final = re.compile(r"\.reg\s+\.pred\s+(\w+)\s*;")
_LABEL: Final = re.compile(r"(?:^|[;{\s])(\w+):(?!:)")


def normal_ptx(template: str) -> str:
    """The text of asm with one blank between words and its labels and predicates numbered, `$0`, `$1`, ..."""
    names = [*_PREDICATE.findall(template), *_LABEL.findall(template)]
    for number, name in enumerate(dict.fromkeys(names)):
        template = re.sub(rf"(?<![\w%.]){re.escape(name)}\b(?!\.)", f"${number}", template)
    template = re.sub(r"([{};:])(?!:)(?<!::)", r"\1 ", template)
    return " ".join(template.split())
