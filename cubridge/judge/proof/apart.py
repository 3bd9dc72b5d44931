"""Names of captured values, apart from all names that a proof has: a captured number may be called `t`, `kv_start` or `top`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from cubridge.ir.capture_names import capture_of
from cubridge.ir.nodes import Captured, Expr, Field, Kernel, Name, Scalar
from cubridge.ir.spec import AttentionSpec
from cubridge.ir.walk import substitute

_MARK: Final = "@"
"""No name of a program has it."""


def apart(kernel: Kernel, spec: AttentionSpec) -> tuple[Kernel, AttentionSpec]:
    """Both with marked names for what the reference captures."""
    names = {c.name: Name(_MARK + c.name) for c in spec.captures}
    return replace(kernel, params=tuple(_field(f, names) for f in kernel.params)), _spec(spec, names)


def as_written(text: str) -> str:
    """A sentence with the names of the reference."""
    return text.replace(_MARK, "")


def _field(field: Field, names: Mapping[str, Name]) -> Field:
    match field.type:
        case Captured():
            of = capture_of(field)
            known = names.get(of or "")
            return field if known is None else replace(field, type=replace(field.type, of=known.id))
        case Scalar(_, host) if host is not None:
            return replace(field, type=replace(field.type, host=substitute(host, names)))
        case _:
            return field


def _spec(spec: AttentionSpec, names: Mapping[str, Name]) -> AttentionSpec:
    def marked(expr: Expr) -> Expr:
        return substitute(expr, names)

    return replace(
        spec,
        score=marked(spec.score),
        mask=marked(spec.mask),
        weight=marked(spec.weight),
        rows=tuple(replace(r, over=marked(r.over), body=marked(r.body)) for r in spec.rows),
        finalize=marked(spec.finalize),
        lse=None if spec.lse is None else marked(spec.lse),
        kv_head=marked(spec.kv_head),
        captures=tuple(replace(c, name=names[c.name].id) for c in spec.captures),
        preconditions=tuple(replace(p, condition=marked(p.condition)) for p in spec.preconditions),
    )
