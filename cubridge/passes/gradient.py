"""A backward pass for a gradient: the regions of its kernels, from those of the forward kernel that computes the attention.

Score, mask and weight are the forward kernel's own code, so that both passes have the same scores to the bit: locals are put in, a
value of a query row is computed where it is read, and the running reference of a softmax becomes the saved `lse`. What is derived
comes from the spec: `probs_grad`, `score_grad`, and the factors of dq and dk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cubridge.ir.algebra.arithmetic import ONE, ZERO, negative, times
from cubridge.ir.algebra.exprs import MINUS_INF, both
from cubridge.ir.algebra.hosts import is_positive
from cubridge.ir.capture_names import capture_of, field_name
from cubridge.ir.gradient import GradientSpec
from cubridge.ir.nodes import (
    Assign,
    Attr,
    Binary,
    Call,
    Captured,
    Element,
    Expr,
    Field,
    IntLit,
    Kernel,
    Name,
    Node,
    Row,
    Scalar,
    Stmt,
    TileList,
)
from cubridge.ir.parser import parse_expr
from cubridge.ir.printer import print_expr
from cubridge.ir.series import without_series
from cubridge.ir.spec import AttentionSpec
from cubridge.ir.types import DType
from cubridge.ir.walk import free_names, map_children, rewrite, substitute, walk
from cubridge.passes.approximate import approximated
from cubridge.passes.base import refusal
from cubridge.passes.coerce import Coercion
from cubridge.passes.host_params import HostParams
from cubridge.passes.mask import IN_RANGE
from cubridge.passes.names import resolve
from cubridge.passes.query_lists import with_query_lists
from cubridge.passes.query_range import with_query_sequence
from cubridge.passes.regions import assign, free_name, masked, param, with_region
from cubridge.passes.truths import with_truths

CODE: Final = "CU534"
_INSIDE: Final = parse_expr("i < Lq")
_LSE: Final = Name("lse")
_STEMS: Final = {"score": "score", "probs_grad": "weight", "score_grad": "slope"}
"""What the names of new parameters begin with."""
_SCORE: Final = parse_expr("(lse + log2(w)) * LN2")
"""The score, from the weight and `lse`, both of exponents of two."""
_SCORE_NAME: Final = "x"
_WORDS: Final = ("dp", "ds", "w", "lse", "delta", "slope")
"""What the expressions of a gradient are called in the regions of the backward kernel."""


@dataclass(frozen=True, slots=True)
class Targets:
    """The kernels of a backward pass for a gradient, in the order in which they run."""

    rows: Kernel
    pairs: Kernel
    last: Kernel


def backward_targets(gradient: GradientSpec, forward: Kernel, rows: Kernel, pairs: Kernel, last: Kernel) -> Targets:
    """`rows`, `pairs` and `last` for full attention, with the regions of `gradient`; `forward` is the kernel that computes the
    attention. Errors: CU534 for a gradient that these kernels have no place for."""
    _check(gradient)
    return Targets(rows, _Pairs(gradient, without_series(forward), pairs).target(), with_scale(last, gradient.dq_scale))


def with_scale(kernel: Kernel, scale: Expr) -> Kernel:
    """The kernel whose sum is multiplied by `scale` at the end."""
    fields = (
        replace(f, type=replace(f.type, host=scale)) if f.name == "grad_scale" and isinstance(f.type, Scalar) else f
        for f in kernel.params
    )
    return replace(kernel, params=tuple(fields))


def _refuse(what: str, expr: Expr | None = None) -> Exception:
    said = "" if expr is None else f": `{print_expr(expr)}`"
    return refusal(CODE, f"the backward kernels have no place for {what}{said}")


def _check(g: GradientSpec) -> None:
    """What the rows kernel computes is A = dout, up to a factor of the launch, and one coefficient that is less `delta`."""
    words = g.words
    unknown = {*g.saved} - {words.out, words.lse}
    if unknown:
        raise _refuse(f"what the forward pass would save of each row, {', '.join(sorted(unknown))}")
    _output_factor(g)
    delta = negative(times(Name(words.out), Name(words.dout)))
    for coefficient in g.coefficients:
        if coefficient.each != delta or coefficient.alone not in (ZERO, Name(words.dlse)):
            raise _refuse(f"the gradient of the row sum {coefficient.row}", coefficient.each)
    if len(g.coefficients) > 1:
        raise _refuse("the gradients of several row sums")
    if any(part.over != g.mask for part in g.parts) or any(r.over != g.mask for r in g.forward.rows):
        raise _refuse("row sums over other keys than the weights'")
    if "x" in g.kept:
        raise _refuse("a derivative of the weight that reads the score")


def _output_factor(g: GradientSpec) -> Expr:
    """f of A = f * dout, which the launch knows."""
    dout = Name(g.words.dout)
    match g.acc_grad:
        case found if found == dout:
            return ONE
        case Binary("*", factor, d) | Binary("*", d, factor) if d == dout and _is_host(factor, g.forward):
            return factor
        case Binary("/", d, divisor) if d == dout and _is_host(divisor, g.forward):
            return Binary("/", ONE, divisor)
        case _:
            raise _refuse("a gradient of the sum of values other than dout", g.acc_grad)


def _is_host(expr: Expr, spec: AttentionSpec) -> bool:
    numbers = {c.name for c in spec.captures if not c.extents}
    return is_positive(expr) and free_names(expr) <= {"B", "Hq", "Hk", "Lq", "Lk", "D", *numbers}


class _Pairs:
    """Makes the main kernel."""

    def __init__(self, gradient: GradientSpec, forward: Kernel, source: Kernel) -> None:
        self.g = gradient
        self.forward = forward
        self.kernel = source
        self.renamed: dict[Expr, Expr] = {}
        self.rows = _row_values(forward)

    def target(self) -> Kernel:
        self.kernel = replace(self.kernel, params=(*(f for f in self.kernel.params if f.fixed), *self._params()))
        self._numbers()
        self._tile_state()
        self._score()
        self._mask()
        self.kernel = with_region(self.kernel, "probs", [assign("s", self._weight())])
        self._probs_grad()
        self._score_grad()
        return _without_unread(with_scale(self.kernel, self.g.dk_scale))

    # ---- from the forward kernel -------------------------------------------------------------------------------------

    def _params(self) -> Iterable[Field]:
        """Those of the variant, under names that the kernel does not have yet; lists of key tiles stay behind."""
        taken = {f.name for f in self.kernel.params if f.fixed} | {"grad_scale"}
        for item in (f for f in self.forward.params if not f.fixed and not isinstance(f.type, TileList)):
            name = free_name(item.name, taken)
            taken.add(name)
            self.renamed[param(item.name)] = param(name)
            kind = item.type
            if name != item.name and isinstance(kind, Captured):
                kind = replace(kind, of=capture_of(item))
            yield replace(item, name=name, type=kind)
        yield Field("grad_scale", Scalar(DType.F32, self.g.dk_scale), fixed=False)

    def _numbers(self) -> None:
        """Captured numbers, of which the forward kernel may have but what the host makes of them."""
        bound = {capture_of(f) for f in self.kernel.params}
        for capture in (c for c in self.g.forward.captures if not c.extents and c.name not in bound):
            kind = Scalar(DType.F32 if capture.dtype == "f32" else DType.I32, Name(capture.name))
            item = Field(field_name(capture.name, self.kernel), kind, fixed=False)
            self.kernel = replace(self.kernel, params=(*self.kernel.params, item))

    def _own(self, expr: Expr) -> Expr:
        """An expression of the forward kernel's regions in this kernel's names, with values of query rows put in."""

        def change(node: Node) -> Node:
            return self.rows.get(node, self.renamed.get(node, node)) if isinstance(node, Attr) else node

        return rewrite(rewrite(expr, change), change)

    def _tile_state(self) -> None:
        body = [
            replace(s, value=self._own(s.value))
            for s in _assigns(self.forward, "tile_setup")
            if s.target not in self.rows and (isinstance(s.target, Attr) or self.forward.tile_state)
        ]
        if any(n == Attr(Name("tile"), "q_start") for s in body for n in walk(s)):
            raise _refuse("values of a query tile")
        state = tuple(f for f in self.forward.tile_state if Attr(Name("tile"), f.name) not in self.rows)
        self.kernel = with_region(replace(self.kernel, tile_state=state), "tile_setup", body if state else ())

    def _score(self) -> None:
        score = self._own(_final(self.forward, "score", "s"))
        body: list[Stmt] = []
        if self.g.slope_from == "kept":
            self.kernel = replace(self.kernel, score_state=(Field("slope", Element(DType.F32)),))
            body.append(assign(Attr(Name("kept"), "slope"), self._derived(self.g.slope)))
        body += [] if score == Name("s") else [assign("s", score)]
        self.kernel = with_region(self.kernel, "score", body)
        self._lowered("score")

    def _mask(self) -> None:
        """Without an LSE that says which rows there are, rows past the end are masked as well."""
        value = self._own(_final(self.forward, "mask", "s"))
        match value:
            case Call("where", (keep, Name("s"), other)) if other == MINUS_INF:
                pass
            case _:
                raise _refuse("this mask", value)
        seen = keep if self.g.coefficients else both(keep, _INSIDE)
        self.kernel = with_region(self.kernel, "mask", [masked(seen)])
        if seen != IN_RANGE:
            mask = resolve(with_truths(self.g.mask, self.g.forward), self.forward, ("s", "i", "j"))
            mask = Coercion(self.forward).predicate(mask)
            self.kernel = self._walks(mask)

    def _walks(self, mask: Expr) -> Kernel:
        """Lists of query tiles where the forward walks lists of key tiles; none of a mask that reads the query head, since one list
        would be for all heads of a key head."""
        listed = next((f.type for f in self.forward.params if isinstance(f.type, TileList)), None)
        if listed is None or len(listed.axes) > 1:
            return with_query_sequence(self.kernel, self.forward, mask)
        return with_query_lists(self.kernel, self._own(listed.keep), listed.axes)

    def _weight(self) -> Expr:
        """What weights are, times what the output's sum is multiplied by: the reference of a softmax is the saved `lse`."""
        value = self._own(_final(self.forward, "row_probs", "s"))
        value = substitute_attr(value, {Attr(Name("row"), "m_exponent"): _LSE})
        if self.g.forward.shift:
            value = _relative_to_lse(value)
        if any(isinstance(n, Attr) and n.base == Name("row") for n in walk(value)):
            raise _refuse("weights that read the state of a row", value)
        factor = None if self.g.coefficients else self._output_scale()
        return value if factor is None else Binary("*", value, factor)

    def _output_scale(self) -> Expr | None:
        """What finalize multiplies the output by, where it does not depend on the row."""
        final = self._own(_final(self.forward, "row_finalize", "o"))
        match final:
            case Name("o"):
                return None
            case Binary("*", Name("o"), factor) if not any(
                isinstance(n, Name) and n.id in ("row", "o") for n in walk(factor)
            ):
                return factor
            case _:
                raise _refuse("this output", final)

    # ---- derived -----------------------------------------------------------------------------------------------------

    def _probs_grad(self) -> None:
        """dx, with w the weight times the factor of the output, and dp the product of dout and the values."""
        words, factor = self.g.words, _output_factor(self.g)
        values: dict[str, Expr] = {words.weight: Name("w"), words.dp: Name("dp")}
        values |= {c.name: negative(Name("delta")) for c in self.g.coefficients}
        total: Expr = ZERO
        for part in self.g.parts:
            total = part.value if total == ZERO else Binary("+", total, part.value)
        self.kernel = with_region(
            self.kernel,
            "probs_grad",
            [assign("dp", self._derived(_rescaled(total, words.weight, words.dp, factor), values))],
        )
        self._lowered("probs_grad")

    def _score_grad(self) -> None:
        words, factor = self.g.words, _output_factor(self.g)
        value = self.g.score_grad
        body: list[Stmt] = []
        if value != Name(words.dx):
            kept = Attr(Name("kept"), "slope")
            logarithm = Binary("+", Name(words.lse), Call("log", (Name(words.weight),)))
            value = rewrite(value, lambda n: Name(_SCORE_NAME) if n == logarithm else n)
            if words.lse in free_names(value):
                raise _refuse("a derivative of the score that reads the LSE", value)
            rescaled = _rescaled(value, words.weight, words.dp, factor)
            names: dict[str, Expr] = {words.dx: Name("ds"), words.weight: Name("w"), words.slope: Name("slope")}
            derived = self._derived(rescaled, {**names, _SCORE_NAME: _SCORE})
            body = [assign("ds", rewrite(derived, lambda n: kept if n == Name("slope") else n))]
        self.kernel = with_region(self.kernel, "score_grad", body)
        self._lowered("score_grad")

    def _derived(self, expr: Expr, values: Mapping[str, Expr] | None = None) -> Expr:
        """An expression of the spec in region code, as a float."""
        named = with_truths(substitute(expr, values or {}), self.g.forward)
        locals = ("s", "i", "j", *_WORDS)
        return Coercion(self.kernel, frozenset(_WORDS)).number(resolve(named, self.kernel, locals))

    def _lowered(self, region: str) -> None:
        """Whole powers as products of a local, approximate functions, and numbers of the launch as parameters."""
        powers = _Powers()
        body = [a for s in _assigns(self.kernel, region) for a in powers.statements(s)]
        kernel = approximated(with_region(self.kernel, region, body), region, _STEMS[region])
        params = HostParams(kernel, _STEMS[region])
        body = [replace(s, value=params.lower(s.value)) for s in kernel.region(region).body if isinstance(s, Assign)]
        self.kernel = with_region(params.kernel, region, _shared(body))


def _relative_to_lse(weight: Expr) -> Expr:
    """The weight of a softmax whose reference is a constant."""
    match weight:
        case Call("exp2", (Binary("*", Name("s"), _) as exponent,)):
            pass
        case Call("exp2", (Binary("-", Binary("*", Name("s"), _) as exponent, Attr(Name("p"))),)):
            pass
        case _:
            return weight
    return Call("exp2", (Binary("-", exponent, _LSE),))


# ---- expressions -----------------------------------------------------------------------------------------------------


def _rescaled(expr: Expr, weight: str, dp: str, factor: Expr) -> Expr:
    """With the kernel's weight, `factor` times the spec's, and its dp, the spec's over `factor`; its sign is the same."""
    if factor == ONE:
        return expr

    def change(node: Node) -> Node:
        match node:
            case Binary(op, Name(name), zero) if name == weight and op in (">", "==", "!=", "<") and zero == ZERO:
                return Binary(op, Name("w_"), zero)
            case Name(name) if name == weight:
                return Binary("/", Name("w_"), factor)
            case Name(name) if name == dp:
                return times(factor, Name(dp))
            case _:
                return node

    def walked(node: Node) -> Node:
        done = change(node)
        if done is not node:
            return done

        return map_children(node, walked)

    result = walked(expr)
    assert isinstance(result, Expr)
    return substitute(result, {"w_": Name(weight)})


class _Powers:
    """Whole powers of what varies as products, which device code has, of locals."""

    def __init__(self) -> None:
        self.locals: dict[Expr, Name] = {}

    def statements(self, statement: Assign) -> list[Assign]:
        known = len(self.locals)
        changed = replace(statement, value=rewrite(statement.value, self._change))
        return [*(assign(name, base) for base, name in [*self.locals.items()][known:]), changed]

    def _change(self, node: Node) -> Node:
        match node:
            case Binary("**", base, IntLit(power)) if power >= 1 and free_names(base) & {*_WORDS, "s"}:
                name = base if isinstance(base, Name) else self.locals.setdefault(base, Name(f"x_{len(self.locals)}"))
                result: Expr = name
                for _ in range(power - 1):
                    result = Binary("*", result, name)
                return result
            case _:
                return node


def _shared(body: Sequence[Assign]) -> list[Assign]:
    """Without a second computation of what a local holds."""
    known: dict[Node, Expr] = {}
    result: list[Assign] = []
    for statement in body:
        result.append(replace(statement, value=rewrite(statement.value, lambda n: known.get(n, n))))
        if isinstance(statement.target, Name) and statement.target.id not in ("s", *_WORDS):
            known[statement.value] = statement.target
    return result


def substitute_attr(expr: Expr, values: Mapping[Expr, Expr]) -> Expr:
    return rewrite(expr, lambda n: values.get(n, n) if isinstance(n, Attr) else n)


def _assigns(kernel: Kernel, region: str) -> list[Assign]:
    return [s for s in kernel.region(region).body if isinstance(s, Assign)]


def _final(kernel: Kernel, region: str, name: str) -> Expr:
    """What a region makes of `name`, with its locals put in."""
    values: dict[str, Expr] = {}
    for statement in _assigns(kernel, region):
        if isinstance(statement.target, Name):
            values[statement.target.id] = substitute(statement.value, values)
    return values.get(name, Name(name))


def _row_values(forward: Kernel) -> dict[Expr, Expr]:
    """The fields of the query tile that differ between its rows, with what `tile_setup` puts there."""
    by_row = {f.name for f in forward.tile_state if isinstance(f.type, Row)}
    values: dict[str, Expr] = {}
    found: dict[Expr, Expr] = {}
    for statement in _assigns(forward, "tile_setup"):
        value = substitute(statement.value, values)
        match statement.target:
            case Name(name):
                values[name] = value
            case Attr(_, name) if name in by_row:
                found[statement.target] = value
            case _:
                pass
    return found


def _without_unread(kernel: Kernel) -> Kernel:
    """Without parameters of the variant that no region and no list reads."""
    lists = [f for f in kernel.params if isinstance(f.type, TileList)]
    reads = (n for part in (*kernel.regions, *lists) for n in walk(part) if isinstance(n, Attr) and n.base == Name("p"))
    read = {"grad_scale", *(n.name for n in reads)}
    return replace(kernel, params=tuple(f for f in kernel.params if f.fixed or f.name in read))
