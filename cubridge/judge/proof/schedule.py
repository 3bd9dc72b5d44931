"""The schedule: the key head of each query head, and whether every query tile is met once."""

from __future__ import annotations

from cubridge.ir.nodes import Assign, Attr, Expr, Kernel, Name
from cubridge.ir.spec import AttentionSpec
from cubridge.judge.proof import smt
from cubridge.judge.proof.integers import Integers
from cubridge.judge.proof.regions import Execution, Regions
from cubridge.judge.proof.unproved import Unproved

_HEAD = Attr(Name("tile"), "h")
_KEY_HEAD = Attr(Name("tile"), "hk")


def check_schedule(kernel: Kernel, spec: AttentionSpec, integers: Integers) -> None:
    """Errors: Unproved. The key head is shown; that the work tiles are all query tiles, once each, is not yet."""
    found = key_head(kernel)
    if found != spec.kv_head:
        claim = smt.compared("==", integers.integer(found), integers.integer(spec.kv_head))
        if not integers.holds(claim):
            raise Unproved("query heads may read other key heads than the reference's")
    raise Unproved("it divides by numbers of heads and tiles, of which the solver does not know enough")


def key_head(kernel: Kernel) -> Expr:
    """The key head of query head h. Errors: Unproved if it follows from something else."""
    run = Execution(Regions(kernel))
    for statement in kernel.schedule.body:
        match statement:
            case Assign(Attr(Name("tile"), "h"), _):
                run.places[_HEAD] = Name("h")
            case Assign(target, value):
                run.places[target] = run.formula(value)
            case _:
                pass
    if _KEY_HEAD not in run.places:
        raise Unproved("the schedule sets no key head")
    return run.places[_KEY_HEAD]
