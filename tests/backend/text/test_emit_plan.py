"""Random region bodies: the loops and arrays that lowering chooses compute, under a compiler, what the statements say."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final

import torch

from cubridge.backend.ptx.device import ONE_SCHEDULE
from cubridge.backend.text.emit import emit_function
from cubridge.backend.text.names import Names, Spelling
from cubridge.ir.evaluate import evaluate
from cubridge.ir.nodes import (
    REGIONS,
    Assign,
    Attr,
    Binary,
    Call,
    Expr,
    FloatLit,
    Function,
    IntLit,
    Name,
    Stmt,
)
from cubridge.ir.types import Axis
from cubridge.ir.walk import map_children
from tests.backend.ptx.foreign import Given, run
from tests.support.golden_texts import golden_kernel

ROWS, COLS = 3, 4
Q_START, KV_START = 5, 16
ROW: Final = frozenset({Axis.ROW})
KEY: Final = frozenset({Axis.KEY})
LEVELS: Final = (frozenset[Axis](), ROW, KEY, ROW | KEY)
WRITABLE: Final = {
    "score": ((Name("s"), ROW | KEY),),
    "row_init": ((Attr(Name("row"), "m"), ROW), (Attr(Name("row"), "m_exponent"), ROW)),
    "row_probs": ((Name("s"), ROW | KEY), (Attr(Name("row"), "m"), ROW)),
}


@dataclass
class BodyMaker:
    """Statements over locals `x0, x1, ..` of random axes; a local may be assigned twice."""

    rnd: Random
    region: str
    known: dict[str, frozenset[Axis]] = field(default_factory=dict)

    def body(self) -> tuple[Stmt, ...]:
        statements = [self._statement() for _ in range(self.rnd.randint(1, 9))]
        target, axes = self.rnd.choice(WRITABLE[self.region])
        return (*statements, Assign(target, self._sum(axes)))

    def _statement(self) -> Stmt:
        choice = self.rnd.random()
        if choice < 0.25:
            target, axes = self.rnd.choice(WRITABLE[self.region])
            return Assign(target, self._sum(axes))
        if choice < 0.5 and self.known:
            name = self.rnd.choice(sorted(self.known))
            return Assign(Name(name), self._sum(self.known[name]))
        name, axes = f"x{len(self.known)}", self.rnd.choice(self._levels())
        value = self._sum(axes)
        self.known[name] = axes
        return Assign(Name(name), value)

    def _levels(self) -> tuple[frozenset[Axis], ...]:
        return LEVELS if "s" in REGIONS[self.region] else LEVELS[:2]

    def _sum(self, axes: frozenset[Axis]) -> Expr:
        """A sum that varies over `axes`, all of them."""
        value: Expr = FloatLit(self.rnd.randint(-8, 8) / 4)
        for axis in sorted(axes):
            value = Binary("+", value, Call("f32", (Name(axis.value),)))
        for _ in range(self.rnd.randint(1, 3)):
            value = Binary(self.rnd.choice("+-"), value, self._term(axes))
        return value

    def _term(self, axes: frozenset[Axis]) -> Expr:
        fits = [Name(n) for n, a in self.known.items() if a <= axes]
        leaves: list[Expr] = [*fits, Attr(Name("p"), "exponent_scale"), FloatLit(0.5)]
        if axes >= ROW and self.region != "row_init":
            leaves += [Name("s")] if axes >= KEY else []
            leaves += [Attr(Name("row"), "m")] if self.region == "row_probs" else []
        if axes >= ROW and self.region == "row_probs" and self.rnd.random() < 0.5:
            tiles = [Name("s"), *(Name(n) for n, a in self.known.items() if a == ROW | KEY)]
            return Call("rowmax", (Binary("*", self.rnd.choice(tiles), FloatLit(self.rnd.choice((1.0, -0.5)))),))
        leaf = self.rnd.choice(leaves)
        return leaf if self.rnd.random() < 0.6 else Call("maximum", (leaf, IntLit(1)))


# ---- what the statements say -----------------------------------------------------------------------------------------


def interpreted(body: tuple[Stmt, ...], one_row: int | None) -> list[float]:
    """Scores and row state after `body`; with `one_row` only that row counts."""
    values: dict[str, torch.Tensor | float] = {
        "i": torch.tensor([[Q_START + 8.0 * r] for r in range(ROWS)]),
        "j": torch.tensor([[KV_START + 2.0 * c + 1 for c in range(COLS)]]),
        "s": torch.tensor([[r * 0.5 - c for c in range(COLS)] for r in range(ROWS)]),
        "row.m": torch.tensor([[r + 0.25] for r in range(ROWS)]),
        "row.m_exponent": torch.zeros(ROWS, 1),
        "p.exponent_scale": 0.125,
    }
    before = {name: values[name] for name in ("s", "row.m", "row.m_exponent")}
    for statement in body:
        assert isinstance(statement, Assign)
        value = _value(statement.value, values)
        old = values.get(_key(statement.target))
        shape = torch.as_tensor(old if old is not None else value).shape
        values[_key(statement.target)] = torch.as_tensor(value).expand(shape)
    for name, old in before.items():
        if one_row is not None:
            values[name] = torch.cat(
                [torch.as_tensor(values[name] if r == one_row else old)[r : r + 1] for r in range(ROWS)]
            )
    return [float(x) for name in before for x in torch.as_tensor(values[name]).flatten()]


def _value(expr: Expr, values: dict[str, torch.Tensor | float]) -> torch.Tensor | float:
    held: dict[str, torch.Tensor | float] = dict(values)

    def reduce(node: object) -> Expr:
        assert isinstance(node, Expr)
        node = map_children(node, reduce) if not isinstance(node, Attr) else node
        if isinstance(node, Call) and node.fn == "rowmax":
            name = f"reduced_{len(held)}"
            held[name] = torch.as_tensor(evaluate(node.args[0], lambda n: held[_key(n)])).amax(1, keepdim=True)
            return Name(name)
        return node

    reduced = reduce(expr)
    return evaluate(reduced, lambda n: held[_key(n)])


def _key(expr: Expr) -> str:
    match expr:
        case Name(name):
            return name
        case Attr(Name(base), name):
            return f"{base}.{name}"
        case _:
            raise AssertionError(expr)


# ---- what the compiled text computes ---------------------------------------------------------------------------------

PRELUDE: Final = f"""
enum {{ ROWS = {ROWS}, S_COLS = {COLS} }};
struct Params {{ double exponent_scale = 0.125; }};
struct WorkTile {{ int q_start = {Q_START}; }};
struct RowState {{ double m[ROWS], m_exponent[ROWS]; }};
__device__ int frag_row(int r) {{ return 8 * r; }}
__device__ int frag_col(int c) {{ return 2 * c + 1; }}
__device__ double frag_col_f32(int start, int c) {{ return start + frag_col(c); }}
__device__ double row_max(const double (&x)[S_COLS]) {{ double m = x[0]; for (double y : x) m = fmax(m, y); return m; }}
"""
RUN: Final = f"""
{{ double s[ROWS][S_COLS]; RowState row; const WorkTile tile; const Params p; const int kv_start = {KV_START}, r = 1;
  for (int a = 0; a < ROWS; ++a) {{ row.m[a] = a + 0.25; row.m_exponent[a] = 0;
    for (int b = 0; b < S_COLS; ++b) s[a][b] = a * 0.5 - b; }}
  BODY
  for (auto& a : s) for (double x : a) *out++ = x;
  for (double x : row.m) *out++ = x;
  for (double x : row.m_exponent) *out++ = x; }}
"""
VALUES: Final = ROWS * COLS + 2 * ROWS
SHARE: Final = 15
"""Bodies of one compile, which takes more time a body the more there are."""


def compiled(bodies: list[str]) -> list[list[float]]:
    """All is constant, so that the compiler computes it."""
    text = PRELUDE + "G(double* out) {" + "".join(RUN.replace("BODY", b) for b in bodies) + "}"
    text = text.replace("float", "double").replace("fmaxf", "fmax").replace(".f", ".").replace("5f", "5")
    out = torch.zeros(len(bodies), VALUES, dtype=torch.float64)
    return run(text, Given((out,), threads=1), ONE_SCHEDULE).tolist()


def test_compiled_bodies_compute_what_the_statements_say() -> None:
    rnd = Random(7)
    kernel = golden_kernel("sm80")
    made = [(region, BodyMaker(rnd, region).body()) for region in WRITABLE for _ in range(40)]
    texts = [
        emit_function(Function(region, REGIONS[region], body), kernel, Spelling(Names({}), {})) for region, body in made
    ]
    results = [values for n in range(0, len(texts), SHARE) for values in compiled(texts[n : n + SHARE])]
    for (region, body), text, got in zip(made, texts, results, strict=True):
        assert got == interpreted(body, 1 if region == "row_probs" else None), f"{body}\n{text}"
