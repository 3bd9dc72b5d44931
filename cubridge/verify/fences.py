"""Rules of wgmma that no run can show, and that each group of it is closed and waited for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from cubridge.ir.diagnostics import Diagnostic
from cubridge.ir.nodes import (
    Cast,
    DotRows,
    Expr,
    Gemm,
    Kernel,
    Load,
    Name,
    ReadShared,
    RegionCall,
    RegisterTile,
    Scale,
    Stmt,
    Store,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
    WriteShared,
    Zero,
)
from cubridge.verify.flow import Facts, Flow


def check_fences(kernel: Kernel) -> Iterable[Diagnostic]:
    """CU216: registers that code has touched go through `wgmma_fence` before wgmma uses them."""
    return _Fences(kernel).run()


def check_groups(kernel: Kernel) -> Iterable[Diagnostic]:
    """CU222: every wgmma is in a committed group before a wait, and every group is waited for before the kernel ends."""
    analysis = _Groups(kernel)
    end = analysis.block(kernel.body, frozenset())
    for stmt in end or ():
        analysis.report("CU222", "nothing waits for this wgmma", stmt)
    return analysis.faults.values()


class _Fences(Flow[str]):
    """Facts: register tiles that code may have touched since the last fence."""

    must: ClassVar[bool] = False

    def step(self, stmt: Stmt, facts: Facts[str]) -> Facts[str]:
        match stmt:
            case RegisterTile(name):
                return facts | {name}
            case WgmmaFence():
                return frozenset()
            case Gemm(dst, a, asynchronous=True):
                for name in sorted(_tiles(dst, a) & facts):
                    help = "`wgmma_fence()` between the last access of the registers and the gemm"
                    self.report(
                        "CU216", f"wgmma uses `{name}`, and no fence follows what code did to it", stmt, help=help
                    )
                return facts
            case RegionCall(_, args):
                return facts | _tiles(*args)
            case Zero(dst) | Scale(dst) | Load(dst) | DotRows(dst) | ReadShared(dst):
                return facts | _tiles(dst)
            case Cast(dst, src):
                return facts | _tiles(dst, src)
            case Store(src=src) | WriteShared(src=src):
                return facts | _tiles(src)
            case _:
                return facts


class _Groups(Flow[Stmt]):
    """Facts: wgmma in flight that no wait covers yet; a `WgmmaCommit` stands for those that are committed."""

    must: ClassVar[bool] = False

    def step(self, stmt: Stmt, facts: Facts[Stmt]) -> Facts[Stmt]:
        match stmt:
            case Gemm(asynchronous=True):
                return facts | {stmt}
            case WgmmaCommit():
                if not any(isinstance(f, Gemm) for f in facts):
                    self.report("CU222", "this commit closes a group without any wgmma", stmt)
                return frozenset({stmt})
            case WgmmaWait(pending):
                for gemm in facts:
                    if isinstance(gemm, Gemm):
                        self.report("CU222", "this wgmma is not committed before the wait", gemm)
                return (
                    frozenset() if self.value(pending) == 0 else frozenset(f for f in facts if not isinstance(f, Gemm))
                )
            case _:
                return facts


def _tiles(*exprs: Expr) -> frozenset[str]:
    return frozenset(e.id for e in exprs if isinstance(e, Name))
