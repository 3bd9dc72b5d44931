"""A kernel at chosen points of a problem of any size: its schedule, its key sequence, and what its regions make of a few keys.

Regions run as in the value engine, over tensors [points, 1, 1, rows, columns]: in fp64, where what differs is the formula, or in
fp32 as on the device, where it may be rounding.
Nothing as long as the problem is made but the numbers of work tiles and of key tiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Final

import torch
from torch import Tensor

from cubridge.engine.core.operands import Value, fault
from cubridge.engine.elements import default_dtype
from cubridge.engine.tile_lists import ListsOfRows
from cubridge.engine.values.gather import Elements, MadeUp, gather_checked
from cubridge.engine.values.launch import grid_of_tiles, work_count
from cubridge.engine.values.regions import Env, Item, compile_region, compile_value
from cubridge.ir.capture_names import capture_of
from cubridge.ir.coordinates import of_block
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.nodes import (
    Attr,
    Captured,
    Expr,
    Field,
    Kernel,
    Name,
    Node,
    Record,
    RegionCall,
    Scalar,
    TileList,
)  # fmt: skip
from cubridge.ir.spec import Shape
from cubridge.ir.tile_shape import key_tile, query_tile, size_of
from cubridge.ir.walk import rewrite

_WORK_FIELDS: Final = ("b", "h", "hk", "q_start")
_COLUMN: Final = (-1, 1, 1, 1, 1)


@dataclass(frozen=True, slots=True)
class WorkTiles:
    """What `work_tile` gives for every work tile of a launch: [work tiles] each."""

    b: Tensor
    h: Tensor
    hk: Tensor
    q_start: Tensor


@dataclass(frozen=True, slots=True)
class Visits:
    """The key sequences of some query tiles, [query tiles, key tiles + 1]: how often each key tile is visited, and whether every
    time with its mask. The last column is a tile past the end, if one is visited. `outside`: [query tiles], a tile before the
    first one is."""

    times: Tensor
    masked: Tensor
    outside: Tensor


@dataclass(frozen=True, slots=True)
class Keys:
    """Some keys of one key tile for each point, in eights: `j` [P, 1, 1, 1, C], first key `start` [P, 1, 1, 1, 1], raw scores `s`
    [P, 1, 1, R, C], values `v` [C, E]; `visited` and `masked` [P, 1, 1, 1, 1]."""

    start: Tensor
    j: Tensor
    s: Tensor
    v: Tensor
    visited: Tensor
    masked: Tensor


@dataclass(frozen=True, slots=True)
class Attended:
    """`out` [P, R, E] and `lse` [P, R], fp64; `peak` [P, R], the largest weight of a key, relative to its row's reference then."""

    out: Tensor
    lse: Tensor
    peak: Tensor


class KernelPoints:
    """One kernel at one size. `captures`: numbers, and tensors by the names of the spec, as the launch gives them. `dtype`: fp64 or
    fp32, what floats are.

    Errors of its methods: CU301 where something has no value, CU312 and CU313 for captured tensors."""

    fragment_rows = 1

    def __init__(
        self,
        kernel: Kernel,
        shape: Shape,
        captures: Mapping[str, Value | MadeUp],
        launch: Mapping[str, int],
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.kernel = kernel
        self.dtype = dtype
        self.shape = shape
        numbers = {name: v for name, v in captures.items() if isinstance(v, int | float)}
        self.names: dict[str, Item] = {**numbers, **launch, **shape.sizes(), **kernel.constant_values}
        self.params = {f.name: self._parameter(f, captures) for f in kernel.params}
        rows, keys = query_tile(kernel), key_tile(kernel)
        if rows is None or keys is None:
            raise fault("CU301", "the kernel does not show the size of its tiles", kernel)
        self.rows, self.keys = size_of(kernel, rows), size_of(kernel, keys)
        self._regions: dict[str, Callable[[Env], None]] = {}

    @property
    def query_tiles(self) -> int:
        return -(-self.shape.Lq // self.rows)

    @property
    def key_tiles(self) -> int:
        return -(-self.shape.Lk // self.keys)

    # ---- what region code reads ----

    def param(self, name: str, node: Node) -> Item:
        if name not in self.params:
            raise fault("CU301", f"`p.{name}` has no value here", node)
        return self.params[name]

    def gather(self, name: str, indices: list[Item], guards: list[Item], node: Expr) -> Item:
        base = self.param(name, node)
        if not isinstance(base, MadeUp | ListsOfRows):
            raise fault("CU301", f"`{name}` is not a captured tensor", node)
        elements: Elements = base
        value = self._own(gather_checked(elements, name, [torch.as_tensor(x) for x in indices], guards, node))
        return value if value.ndim else value.item()

    def _own(self, value: Tensor) -> Tensor:
        """Floats of this dtype; beside fp32, integers of 32 bits, which become floats of 32 bits."""
        if value.is_floating_point():
            return value.to(self.dtype)
        return value.int() if self.dtype == torch.float32 and value.dtype == torch.int64 else value

    def _parameter(self, declared: Field, captures: Mapping[str, Value | MadeUp]) -> Item:
        match declared.type:
            case Scalar(dtype, host) if host is not None:
                value = evaluate_number(host, self.names)
                return value if dtype.is_float else int(value)  # pyright: ignore[reportArgumentType]
            case Captured(dtype, extents, pad):
                given = captures.get(capture_of(declared) or "")
                wanted = tuple(int(evaluate_number(e, self.names)) for e in extents)  # pyright: ignore[reportArgumentType]
                if not isinstance(given, MadeUp) or given.extents != wanted:
                    got = given.extents if isinstance(given, MadeUp) else "none"
                    message = f"the kernel declares `{declared.name}` of {wanted}, and the reference has {got}"
                    raise fault("CU312", message, declared)
                missing = -wanted[-1] % pad if wanted else 0
                return replace(given, pad=missing, is_float=dtype.is_float)
            case _:
                return None

    # ---- the schedule ----

    def work_tiles(self) -> WorkTiles:
        """All work tiles of a launch."""
        schedule = self.kernel.schedule
        names = dict(self.names)
        if schedule.params:
            found = work_count(self.kernel, self.params)
            count = self.query_tiles * self.shape.Hq * self.shape.B if found is None else found
            names[schedule.params[0]] = torch.arange(count)
        else:
            grid = grid_of_tiles(self.kernel, self.query_tiles, self.shape)
            count = grid[0] * grid[1] * grid[2]
            z, y, x = torch.cartesian_prod(*(torch.arange(n) for n in reversed(grid))).unbind(1)
            names |= of_block((x, y, z), grid[0])
        tile = SimpleNamespace()
        body = tuple(s for s in schedule.body if not isinstance(s, RegionCall))
        with default_dtype(self.dtype):
            compile_region(replace(schedule, body=body))(Env(self, names, {}, tile))
        given = (torch.as_tensor(getattr(tile, name)).expand(count) for name in _WORK_FIELDS)
        return WorkTiles(*given)

    def tiles(self, work: WorkTiles, i: Tensor) -> SimpleNamespace:
        """The tile state of some work tiles [P], set up for rows i [P, R]: every field [P, 1, 1, R or 1, 1]."""
        tile = SimpleNamespace(**{name: self._own(getattr(work, name)).view(_COLUMN) for name in _WORK_FIELDS})
        self._run("tile_setup", Env(self, {**self.names, "i": self._rows(i)}, {}, tile))
        return SimpleNamespace(**{name: _by_point(value, len(i)) for name, value in vars(tile).items()})

    # ---- the key sequence ----

    def visits(self, tile: SimpleNamespace, i: Tensor) -> Visits:
        """The key sequences of query tiles with rows i [P, R], as far as lists go for these rows."""
        return self._with_lists(i)._visits(tile, len(i))

    def _with_lists(self, i: Tensor) -> KernelPoints:
        listed = copy(self)
        kinds = {f.name: f.type for f in self.kernel.params if isinstance(f.type, TileList)}
        lists = {name: ListsOfRows(kind, self.names, self.params, i.unique()) for name, kind in kinds.items()}
        listed.params = self.params | lists
        return listed

    def _visits(self, tile: SimpleNamespace, points: int) -> Visits:
        keys = self._sequence(tile)
        count = torch.as_tensor(self._value("key_count", keys, tile)).reshape(-1).expand(points)
        most = 2 * self.key_tiles + 2
        if bool((count > most).any()):
            message = f"{int(count.max())} key tiles are visited, and there are {self.key_tiles}"
            raise fault("CU301", message, self.kernel.region("key_count"))
        t = self._own(torch.arange(max(int(count.max()), 1))).view(1, 1, 1, 1, -1)
        shape = (points, t.numel())
        number = torch.as_tensor(self._value("key_tile", {**keys, "t": t}, tile))
        number = number.expand(points, 1, 1, 1, t.numel()).reshape(shape)
        masked = torch.as_tensor(self._value("key_masked", {**keys, "t": t}, tile))
        masked = masked.expand(points, 1, 1, 1, t.numel()).reshape(shape)
        real = t.reshape(1, -1) < count.view(-1, 1)
        at = number.clamp(0, self.key_tiles).long()
        zeros = torch.zeros(points, self.key_tiles + 1, dtype=torch.long)
        times = zeros.scatter_add(1, at, real.long())
        bare = zeros.scatter_add(1, at, (real & ~masked).long())
        return Visits(times, bare == 0, ((number < 0) & real).any(1))

    def _sequence(self, tile: SimpleNamespace) -> dict[str, Item]:
        region = self.kernel.region("key_sequence")
        env = Env(self, dict(self.names), {}, tile)
        with default_dtype(self.dtype):
            compile_region(region)(env)
            assert isinstance(region.result, Record)
            return {f"keys.{f.name}": compile_value(f.value)(env) for f in region.result.fields}

    def _value(self, name: str, given: Mapping[str, Item], tile: SimpleNamespace) -> Item:
        region = rewrite(self.kernel.region(name), _flat_keys)
        env = Env(self, {**self.names, **given}, {}, tile)
        with default_dtype(self.dtype):
            compile_region(region)(env)
            assert region.result is not None
            return compile_value(region.result)(env)

    # ---- scores, mask, normalizer ----

    def attend(self, tile: SimpleNamespace, i: Tensor, groups: list[Keys]) -> Attended:
        """Row by row [P, R] what a kernel that saw only these keys would give, one group after the other."""
        points, rows = i.shape
        columns = groups[0].v.shape[-1]
        common = {**self.names, "i": self._rows(i)}
        state = {f.name: torch.zeros(points, 1, 1, rows, 1) for f in self.kernel.row_state}
        state = self._state(Env(self, dict(common), dict(state), tile), "row_init", state)
        o = torch.zeros(points, 1, 1, rows, columns, dtype=self.dtype)
        peak = torch.zeros(points, rows, dtype=torch.float64)
        of_output = {**common, "e": torch.arange(columns).view(1, 1, 1, 1, -1)}
        for keys in groups:
            here = common | {"j": self._own(keys.j), "kv_start": self._own(keys.start), "r": 0}
            weight, new = self._weights(tile, here, state, keys)
            env = Env(self, {**of_output, "o": o}, dict(new), tile)
            new = self._state(env, "row_rescale", new)
            scaled = torch.as_tensor(env.names["o"]).expand(o.shape) + weight @ keys.v.to(self.dtype)
            o = torch.where(keys.visited, scaled, o)
            largest = torch.where(keys.visited, weight.abs(), 0.0).amax(-1)
            peak = torch.maximum(peak, largest.view(points, rows))
            state = {name: torch.where(keys.visited, new[name], state[name]) for name in state}
        lse = torch.full((points, 1, 1, rows, 1), torch.nan)
        env = Env(self, {**of_output, "o": o, "lse": lse}, dict(state), tile)
        self._run("row_finalize", env)
        out = torch.as_tensor(env.names["o"]).expand(o.shape)
        lse = torch.as_tensor(env.names["lse"]).expand(points, 1, 1, rows, 1)
        return Attended(out.reshape(points, rows, columns).double(), lse.reshape(points, rows).double(), peak)

    def _weights(
        self, tile: SimpleNamespace, here: dict[str, Item], state: Mapping[str, Tensor], keys: Keys
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The weights of a group, and the row state after it."""
        env = Env(self, {**here, "s": keys.s.to(self.dtype)}, {}, tile)
        self._run("score", env)
        bare = env.names["s"]
        self._run("mask", env)
        s = torch.where(keys.masked, env.names["s"], bare).expand(keys.s.shape)
        new = self._state(Env(self, {**here, "s": s}, dict(state), tile), "row_update", state)
        env = Env(self, {**here, "s": s}, dict(new), tile)
        new = self._state(env, "row_probs", new)
        return torch.as_tensor(env.names["s"], dtype=self.dtype).expand(s.shape), new

    def _state(self, env: Env, region: str, old: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The row state after a region, as tensors of one shape for all points and rows."""
        self._run(region, env)
        changed: dict[str, Tensor] = {}
        for name, before in old.items():
            value = torch.as_tensor(env.row[name], dtype=self.dtype)
            width = max(value.shape[-1] if value.ndim else 1, before.shape[-1])
            changed[name] = value.expand(*before.shape[:-1], width)
        return changed

    def _rows(self, i: Tensor) -> Tensor:
        return self._own(i).view(len(i), 1, 1, -1, 1)

    def _run(self, region: str, env: Env) -> None:
        if region not in self._regions:
            self._regions[region] = compile_region(self.kernel.region(region))
        with default_dtype(self.dtype):
            self._regions[region](env)


def _flat_keys(node: Node) -> Node:
    match node:
        case Attr(Name("keys"), name):
            return Name(f"keys.{name}", span=node.span)
        case _:
            return node


def _by_point(value: Item, points: int) -> Tensor:
    """Like any value of region code, with a first axis of all points."""
    tensor = torch.as_tensor(value)
    return tensor.expand(points, *(tensor.shape[1:] or (1, 1, 1, 1)))
