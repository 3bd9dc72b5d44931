"""GPU architectures that kernels are compiled for, and what each gives a block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cubridge.ir.diagnostics import CuError, Diagnostic, Refused
from cubridge.ir.hardware import SHARED_BYTES
from cubridge.ir.source import NOWHERE, Span


@dataclass(frozen=True, slots=True)
class Target:
    """`name` as the compiler takes it; `shared_limit`: bytes of shared memory that one block can have."""

    name: str
    capability: tuple[int, int]
    shared_limit: int

    @property
    def is_specific(self) -> bool:
        """True for `sm_90a` and its like: code with instructions of this one architecture, which runs on no other."""
        return self.name.endswith("a")


_CAPABILITIES: Final = {
    "sm_80": (8, 0), "sm_86": (8, 6), "sm_87": (8, 7), "sm_89": (8, 9), "sm_90a": (9, 0), "sm_100a": (10, 0), "sm_103a": (10, 3),
    "sm_120a": (12, 0),
}  # fmt: skip

TARGETS: Final[dict[str, Target]] = {
    name: Target(name, capability, SHARED_BYTES[name]) for name, capability in _CAPABILITIES.items()
}


def find_target(arch: str, span: Span = NOWHERE) -> Target:
    """The target `arch`. Errors: CU801 for a name that is none, such as `sm_90` without the `a`."""
    if arch in TARGETS:
        return TARGETS[arch]
    if arch + "a" in TARGETS:
        raise CuError(
            Diagnostic(
                "CU801",
                f"`{arch}` leaves out the instructions that only `{arch}a` has (such as wgmma and setmaxnreg)",
                span,
                help=f"say `{arch}a`; a kernel for sm_80 is compiled for `{arch}a` as well where it runs on such a GPU",
            )
        )
    raise CuError(
        Diagnostic("CU801", f"`{arch}` is not a target of this tool", span, help="one of " + ", ".join(TARGETS))
    )


def target_for_device(kernel_arch: str, capability: tuple[int, int]) -> Target:
    """What to compile a kernel written for `kernel_arch` to, so that it runs on a GPU of this compute capability.
    Errors: CU802 if the GPU lacks the kernel's instructions."""
    written_for = find_target(kernel_arch)
    device = next((t for t in TARGETS.values() if t.capability == capability), None)
    major, minor = capability
    if device is None:
        raise Refused(Diagnostic("CU802", f"no target of this tool is for compute capability {major}.{minor}"))
    if written_for.is_specific and written_for.capability != capability:
        raise Refused(
            Diagnostic(
                "CU802",
                f"the kernel is for {kernel_arch} alone; this GPU has compute capability {major}.{minor}",
                help="take a kernel for this GPU, or one for sm_80, which later GPUs run too",
            )
        )
    if written_for.capability > capability:
        raise Refused(
            Diagnostic("CU802", f"the kernel needs {kernel_arch}; this GPU has compute capability {major}.{minor}")
        )
    return device


def check_shared_memory(need: int, target: Target, constants: dict[str, int], span: Span = NOWHERE) -> None:
    """Errors: CU803 if a block needs more bytes than the target has; `constants` are what may be lowered."""
    if need <= target.shared_limit:
        return
    tunable = [f"{name} = {value}" for name, value in constants.items() if name.startswith(("BLOCK", "STAGES", "TILE"))]
    raise CuError(
        Diagnostic(
            "CU803",
            f"a block needs {need} bytes of shared memory; {target.name} has {target.shared_limit}",
            span,
            help="lower " + " or ".join(tunable) if tunable else "make the tiles or the number of stages smaller",
        )
    )
