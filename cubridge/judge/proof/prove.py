"""The proof of a kernel against a reference, part by part."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache

from cubridge.ir.nodes import Kernel, TileList
from cubridge.ir.series import without_series
from cubridge.ir.spec import AttentionSpec
from cubridge.ir.tile_shape import head_dim
from cubridge.ir.walk import free_names
from cubridge.judge.proof import smt
from cubridge.judge.proof.apart import apart, as_written
from cubridge.judge.proof.captured import check_captures
from cubridge.judge.proof.compare import Comparison, seen_by_kernel
from cubridge.judge.proof.indices import check_indices
from cubridge.judge.proof.induction import check_induction
from cubridge.judge.proof.integers import Integers
from cubridge.judge.proof.keys import KeyProof
from cubridge.judge.proof.lists import ListProof
from cubridge.judge.proof.memory import PROOFS
from cubridge.judge.proof.part import PARTS, Part, Wrong
from cubridge.judge.proof.read import read_mask, read_spec
from cubridge.judge.proof.regions import Regions
from cubridge.judge.proof.roles import check_roles
from cubridge.judge.proof.schedule import check_schedule
from cubridge.judge.proof.unproved import Unproved
from cubridge.verify.ranges import captured_bound


@lru_cache(maxsize=256)
def prove(kernel: Kernel, spec: AttentionSpec) -> tuple[Part, ...]:
    """What is proved of each part of a verified kernel, in the order of `PARTS`; LSE only where the reference has one.
    What was asked before of the same content is known."""
    names = [name for name in PARTS if name != "LSE" or spec.lse is not None]

    def answer() -> list[str]:
        proof = _Proof(kernel, spec)
        parts = [proof.part(name) for name in names]
        return [said for p in parts for said in (p.because, p.counterexample)]

    said = PROOFS.remembered(("parts", kernel, spec), answer)
    return tuple(Part(name, said[2 * n], said[2 * n + 1]) for n, name in enumerate(names))


def prove_part(kernel: Kernel, spec: AttentionSpec, name: str) -> Part:
    """What is proved of one part, and nothing else."""
    return _Proof(kernel, spec).part(name)


class _Proof:
    """`done`: what was asked for already: a part may rest on others."""

    def __init__(self, kernel: Kernel, spec: AttentionSpec) -> None:
        self.kernel, self.spec = kernel, spec = apart(without_series(kernel), spec)
        self.done: dict[str, Part] = {}
        self.checks: dict[str, Callable[[], None]] = {
            "mask": lambda: self._key_proof().check_mask(),
            "score": self._weights,
            "weight": self._weights,
            "rows": self._rows,
            "finalize": lambda: self._after("rows").output(),
            "LSE": lambda: self._after("rows").lse(),
            "captures": self._captures,
            "keys": self._keys,
            "schedule": lambda: check_schedule(kernel, spec, self._integers()),
        }

    def part(self, name: str) -> Part:
        """Errors of a check make no error here: they are what is said of the part."""
        if name not in self.done:
            self.done[name] = self._checked(name)
        return self.done[name]

    def _checked(self, name: str) -> Part:
        try:
            self.checks[name]()
            return Part(name)
        except Unproved as error:
            return Part(name, as_written(str(error)))
        except Wrong as error:
            return Part(name, error.message, str(error.point))

    # ---- integers and keys ----

    def _integers(self) -> Integers:
        captures = {c.name: c.dtype for c in self.spec.captures}
        integers = Integers(captures, head_dim(self.kernel), captured_bound(self.kernel))
        for precondition in self.spec.preconditions:
            integers.facts.append(integers.boolean(precondition.condition))
        return integers

    def _key_proof(self) -> KeyProof | ListProof:
        integers = self._integers()
        inside = smt.compared("<", integers.unknown("j"), integers.unknown("Lk"))
        seen = smt.all_of(integers.boolean(seen_by_kernel(self.spec)), inside)
        integers.facts += integers.divisors
        regions = Regions(self.kernel)
        lists = any(isinstance(f.type, TileList) for f in self.kernel.params)
        return (ListProof if lists else KeyProof)(regions, integers, seen, integers.boolean(read_mask(regions)))

    def _captures(self) -> None:
        check_captures(self.kernel, self.spec, self._integers())
        if check_indices(Regions(self.kernel), self._integers()):
            self._key_proof().check_within()

    def _keys(self) -> None:
        self._key_proof().check()
        check_roles(self.kernel)

    # ---- the normalizer ----

    @cached_property
    def _comparison(self) -> Comparison:
        return Comparison(read_spec(self.kernel), self.spec, self._integers())

    def _after(self, name: str) -> Comparison:
        """What comes later in a row rests on what came before."""
        if not self.part(name).proved:
            raise Unproved(f"{name} is not proved")
        return self._comparison

    def _weights(self) -> None:
        self._comparison.weights()

    def _rows(self) -> None:
        self._after("weight").rows()
        is_relative = self.spec.shift and "m" in free_names(self.spec.weight)
        check_induction(self._comparison.read, self._integers(), is_relative)
