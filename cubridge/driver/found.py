"""A spec as the text of a report."""

from __future__ import annotations

from collections.abc import Iterator

from cubridge.driver.report import Found
from cubridge.ir.nodes import Kernel, TileList
from cubridge.ir.printer import print_expr
from cubridge.ir.source import NOWHERE
from cubridge.ir.spec import AttentionSpec, Capture, Remark
from cubridge.ir.types import DType
from cubridge.passes.constant_reference import VALUE_BITS, has_constant_reference
from cubridge.verify.ranges import LARGEST, captured_bound
from cubridge.verify.size_limits import launch_preconditions


def found(spec: AttentionSpec, target: Kernel) -> Found:
    """What `spec` says, and what of it holds for `target` alone."""
    return Found(
        score=print_expr(spec.score),
        mask=print_expr(spec.mask),
        weight=print_expr(spec.weight),
        rows=tuple(f"{r.name} = {r.kind} over {print_expr(r.over)} of {print_expr(r.body)}" for r in spec.rows),
        finalize=print_expr(spec.finalize),
        lse=None if spec.lse is None else print_expr(spec.lse),
        kv_head=print_expr(spec.kv_head),
        captures=tuple(_capture(c) for c in spec.captures),
        preconditions=tuple(print_expr(p.condition) for p in launch_preconditions(spec, target)),
        specialised=tuple(_remark(r) for r in spec.specialised),
        assumptions=(*(_remark(r) for r in spec.assumptions), *_assumed_by(target, spec)),
        warnings=tuple(_remark(r) for r in spec.warnings),
    )


def _assumed_by(target: Kernel, spec: AttentionSpec) -> Iterator[str]:
    if any(isinstance(f.type, TileList) for f in target.params):
        yield "key tiles are listed by data before each launch; where lists pass 64 MiB, neighbouring query tiles share one"
        yield "the kernel that makes these lists is tested, not proved: what is said for all sizes takes them to be right"
    if has_constant_reference(spec, target):
        yield f"scores have bounds, so no row maximum is taken: values are at most 2 ** {VALUE_BITS} in size"
    bound = captured_bound(target)
    if bound < LARGEST and any(c.dtype == DType.I32 for c in spec.captures):
        yield f"captured integers are at most {bound} in size, so that 32 bits hold what is computed with them"


def _capture(capture: Capture) -> str:
    extents = ", ".join(print_expr(e) for e in capture.extents)
    where = f"`{capture.path}` at each call" if capture.path else capture.kind
    return f"{capture.name}[{extents}] {capture.dtype} ({where})"


def _remark(remark: Remark) -> str:
    return remark.message if remark.span is NOWHERE else f"{remark.message} (line {remark.span.location[0]})"
