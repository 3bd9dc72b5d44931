"""simplify: the local rewrites of `rules`, in every region."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from cubridge.ir.nodes import Assign, Expr, If, Kernel, Stmt
from cubridge.ir.printer import print_expr
from cubridge.passes.base import Pass, PassContext
from cubridge.passes.regions import with_region
from cubridge.passes.rules import Step, simplified


@dataclass(frozen=True, slots=True)
class Simplify(Pass):
    """Apply the rules of `rules.RULES` to the values that regions assign and return.
    rewrite:   s = where((j < Lk) & True, s, -inf)   -->   s = where(j < Lk, s, -inf)
    ensures:   the same values. Each step is told to `ctx.remark`."""

    name: ClassVar[str] = "simplify"
    example: ClassVar[str] = 'rewrite-mask{keep="(j <= i) & True"},simplify'

    def run(self, kernel: Kernel, ctx: PassContext) -> Kernel:
        def tell(step: Step) -> None:
            ctx.remark(f"simplify: {step.rule}: `{print_expr(step.before)}` is `{print_expr(step.after)}`")

        def value(expr: Expr) -> Expr:
            return simplified(expr, tell)

        def statement(old: Stmt) -> Stmt:
            match old:
                case Assign():
                    return replace(old, value=value(old.value))
                case If():
                    return replace(old, condition=value(old.condition), then=tuple(statement(s) for s in old.then))
                case _:
                    return old

        for region in kernel.regions:
            body = tuple(statement(s) for s in region.body)
            result = None if region.result is None else value(region.result)
            kernel = with_region(kernel, region.name, body, result)
        return kernel
