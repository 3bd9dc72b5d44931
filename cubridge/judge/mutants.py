"""Plausible wrong kernels, as wrong specs: the judge must reject each one that moves the result beyond the bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from cubridge.ir.nodes import Binary, BoolLit, Call, Expr, FloatLit, IntLit, Name, Node
from cubridge.ir.spec import AttentionSpec
from cubridge.ir.walk import free_names, rewrite, substitute

Mutation = Callable[[AttentionSpec], AttentionSpec | None]
"""From a spec to a wrong one; None where the mutation does not apply."""


def mutants(spec: AttentionSpec) -> Iterator[tuple[str, AttentionSpec]]:
    """Every mutation that applies to `spec`, by name."""
    for name, mutate in MUTATIONS.items():
        wrong = mutate(spec)
        if wrong is not None and wrong != spec:
            yield name, wrong


def _i(value: int) -> Expr:
    return IntLit(value)


def _plus(left: Expr, right: Expr) -> Expr:
    return Binary("+", left, right)


def _minus(left: Expr, right: Expr) -> Expr:
    return Binary("-", left, right)


def _everywhere(spec: AttentionSpec, mask: Expr) -> AttentionSpec:
    """`spec` with another mask, in its row reductions too where they follow the mask."""
    rows = tuple(replace(r, over=mask) if r.over == spec.mask else r for r in spec.rows)
    return replace(spec, mask=mask, rows=rows)


def _mask_dropped(spec: AttentionSpec) -> AttentionSpec | None:
    return _everywhere(spec, BoolLit(True))


def _mask_shifted(by: int) -> Mutation:
    def mutate(spec: AttentionSpec) -> AttentionSpec | None:
        if "i" not in free_names(spec.mask):
            return None
        last = _minus(Name("Lq"), _i(1))
        row = Call("maximum", (Call("minimum", (_plus(Name("i"), _i(by)), last)), _i(0)))
        return _everywhere(spec, substitute(spec.mask, {"i": row}))

    return mutate


def _key_lost(spec: AttentionSpec) -> AttentionSpec | None:
    """Key 0, which nearly every mask shows to nearly every row."""
    return _everywhere(spec, Binary("&", spec.mask, Binary(">", Name("j"), _i(0))))


def _last_key_lost(spec: AttentionSpec) -> AttentionSpec | None:
    return _everywhere(spec, Binary("&", spec.mask, Binary("<", Name("j"), _minus(Name("Lk"), _i(1)))))


def _other_alignment(spec: AttentionSpec) -> AttentionSpec | None:
    """Top left for bottom right and the reverse."""
    if "i" not in free_names(spec.mask):
        return None
    offset = _minus(Name("Lk"), Name("Lq"))
    if {"Lq", "Lk"} <= free_names(spec.mask):
        return _everywhere(spec, substitute(spec.mask, {"Lq": Name("Lk")}))
    return _everywhere(spec, substitute(spec.mask, {"i": _plus(Name("i"), offset)}))


_DEFAULT_SCORE = Binary("*", Name("s"), Binary("**", Name("D"), FloatLit(-0.5)))


def _default_score(spec: AttentionSpec) -> AttentionSpec | None:
    return replace(spec, score=_DEFAULT_SCORE)


def _scale_doubled(spec: AttentionSpec) -> AttentionSpec | None:
    """Twice the raw dot product."""
    return replace(spec, score=substitute(spec.score, {"s": Binary("*", Name("s"), FloatLit(2.0))}))


def _bias_after_cap(spec: AttentionSpec) -> AttentionSpec | None:
    """What was added inside the cap is added after it."""
    moved: list[Expr] = []

    def lift_bias(node: Node) -> Node:
        match node:
            case Call("tanh", (argument,)) if not moved:
                with_s, without = _split_bias(argument)
                moved.extend(without)
                return Call("tanh", (with_s,))
            case _:
                return node

    score = rewrite(spec.score, lift_bias)
    for bias in moved:
        score = _plus(score, bias)
    return replace(spec, score=score) if moved else None


def _split_bias(expr: Expr) -> tuple[Expr, list[Expr]]:
    """The part of a sum, under constant factors, that reads s; and the addends that do not."""
    match expr:
        case Binary("+" | "-" as op, left, right) if ("s" in free_names(left)) != ("s" in free_names(right)):
            with_s, other = (left, right) if "s" in free_names(left) else (right, left)
            inner, rest = _split_bias(with_s)
            return inner, [*rest, other if op == "+" or with_s is right else Binary("*", FloatLit(-1.0), other)]
        case Binary("*" | "/" as op, left, right) if "s" in free_names(left):
            inner, rest = _split_bias(left)
            return Binary(op, inner, right), rest
        case Binary("*", left, right) if "s" in free_names(right):
            inner, rest = _split_bias(right)
            return Binary("*", left, inner), rest
        case _:
            return expr, []


def _heads_tiled(spec: AttentionSpec) -> AttentionSpec | None:
    return replace(spec, kv_head=Binary("%", Name("h"), Name("Hk")))


def _head_of_captures_shifted(spec: AttentionSpec) -> AttentionSpec | None:
    if "h" not in free_names(spec.score) | free_names(spec.mask) | free_names(spec.finalize):
        return None
    other = Binary("%", _plus(Name("h"), _i(1)), Name("Hq"))
    return replace(
        _everywhere(spec, substitute(spec.mask, {"h": other})),
        score=substitute(spec.score, {"h": other}),
        finalize=substitute(spec.finalize, {"h": other}),
    )


def _not_normalised(spec: AttentionSpec) -> AttentionSpec | None:
    return None if spec.finalize == Name("acc") else replace(spec, finalize=Name("acc"), shift=False, lse=None)


def _weights_halved(spec: AttentionSpec) -> AttentionSpec | None:
    """A lost key tile, or a wrong constant of an elementwise normalizer."""
    return replace(spec, finalize=Binary("*", spec.finalize, FloatLit(0.5)))


def _zero_output(spec: AttentionSpec) -> AttentionSpec | None:
    return replace(spec, finalize=Binary("*", Name("acc"), FloatLit(0.0)))


def _lse_in_base_2(spec: AttentionSpec) -> AttentionSpec | None:
    return None if spec.lse is None else replace(spec, lse=Binary("*", spec.lse, Name("LOG2E")))


MUTATIONS: Final[dict[str, Mutation]] = {
    "mask dropped": _mask_dropped,
    "mask one row late": _mask_shifted(-1),
    "mask one row early": _mask_shifted(1),
    "first key lost": _key_lost,
    "last key lost": _last_key_lost,
    "other alignment": _other_alignment,
    "score replaced by the default": _default_score,
    "scale doubled": _scale_doubled,
    "bias after cap": _bias_after_cap,
    "heads tiled": _heads_tiled,
    "captures of the next head": _head_of_captures_shifted,
    "not normalised": _not_normalised,
    "weights halved": _weights_halved,
    "zero output": _zero_output,
    "LSE in base 2": _lse_in_base_2,
}
