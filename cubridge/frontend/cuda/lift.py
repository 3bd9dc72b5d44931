"""CUDA kernel text to CuIR: reads one instantiation and gives the kernel with the place of every node, and its regions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cubridge.frontend.cuda.checks import assertion_faults, contract_faults, element_faults, text_faults
from cubridge.frontend.cuda.context import Context, read_context
from cubridge.frontend.cuda.definitions import with_definitions
from cubridge.frontend.cuda.fields import param_fields, row_fields, score_fields, shared_fields, tile_fields
from cubridge.frontend.cuda.geometry import table_expr
from cubridge.frontend.cuda.lemmas import Lemmas, load_lemmas
from cubridge.frontend.cuda.markers import read_source_map
from cubridge.frontend.cuda.orchestration import KernelLifter, thread_faults
from cubridge.frontend.cuda.regions import lift_region, lift_schedule, placed_faults
from cubridge.frontend.cuda.signs import Signs, TakenOnTrust
from cubridge.frontend.cuda.structure import read_program
from cubridge.frontend.cuda.text import Headers, is_empty, read_unit
from cubridge.frontend.cuda.views import MISFIT
from cubridge.ir.contract import Instantiation, LaunchContract
from cubridge.ir.diagnostics import CuError, Diagnostic, Note
from cubridge.ir.evaluate import known_number
from cubridge.ir.families import FAMILIES
from cubridge.ir.nodes import Binary, Call, Expr, Field, Function, Kernel, Name
from cubridge.ir.printer import print_expr
from cubridge.ir.source import SourceFile, Span
from cubridge.ir.source_map import SourceMap
from cubridge.ir.tile_shape import rows_of
from cubridge.ir.types import Axis


@dataclass(frozen=True, slots=True)
class Lifted:
    """A kernel as CuIR, each node's span in the CUDA text, and the regions of that text."""

    kernel: Kernel
    source_map: SourceMap


def lift(
    source: SourceFile,
    contract: LaunchContract,
    instance: Instantiation,
    headers: Headers,
    lemmas: Lemmas | None = None,
) -> Lifted:
    """The CuIR of one instantiation of a kernel text. `contract` is the launch contract read for this text; `lemmas`: the tested
    helpers, where they are more than the shipped ones (`load_lemmas`).
    Errors: CU420 to CU429, all that are found, each at its place."""
    if is_empty(source):
        raise CuError(Diagnostic("CU420", "the text is empty", Span(source, 0, 0)))
    source_map = read_source_map(source, FAMILIES[contract.family].sources)
    program = read_program(read_unit(source, dict(instance.macros), headers))
    context = read_context(program, source_map, contract, instance, lemmas or load_lemmas())
    return Lifted(_kernel(context), with_definitions(source_map, program))


def _kernel(context: Context) -> Kernel:
    facts = Signs(context.constants.number, definitions=context.definitions(), upper=_work_bound(context))
    faults: list[Diagnostic] = [*text_faults(context.program.unit, context.contract), *assertion_faults(context)]
    faults += element_faults(context.program.unit, context.contract, context.instance)
    regions = _regions(context, facts, faults)
    schedule, found = lift_schedule(context, facts)
    faults += [*_query_tile_faults(context, found)] or [_with_bound(context, f) for f in found]
    faults += placed_faults(context, facts)
    body = KernelLifter(context, facts)
    body.run(context.kernel.body().body)
    faults += [*body.faults, *thread_faults(body.out)]
    fields = _all_fields(context, body, regions, faults)
    threads = context.kernel.launch_bounds
    if not threads:
        faults.append(Diagnostic("CU429", "the kernel has no launch bounds", context.kernel.head_span))
    if faults or schedule is None:
        raise CuError(*_unique(faults))
    rows = context.fragment_rows
    head = context.kernel.head_span
    params, shared, tile_state, row_state, score_state = fields
    kernel = Kernel(
        name=context.kernel.name,
        arch=context.contract.arch,
        threads=body.scalar(threads[0]).expr,
        team=rows.team,
        row_origin=table_expr(context, rows.row_origin, head),
        constants=context.constants.listed(context.row_count()),
        params=params,
        shared=shared,
        tile_state=tile_state,
        row_state=row_state,
        regions=tuple(regions),
        schedule=schedule,
        body=tuple(body.out),
        family=context.contract.family,
        score_state=score_state,
        span=context.kernel.span,
    )
    misfits = _unique(list(contract_faults(kernel, context.contract, context.instance)))
    if misfits:
        raise CuError(*misfits)
    return kernel


def _regions(context: Context, facts: Signs, faults: list[Diagnostic]) -> list[Function]:
    """The regions that can be lifted; what is wrong with the others goes into `faults`."""
    regions: list[Function] = []
    for name, function in context.regions.items():
        region, found = lift_region(name, function, context, facts)
        faults += found
        if region is not None:
            regions.append(region)
    return regions


def _all_fields(
    context: Context, body: KernelLifter, regions: list[Function], faults: list[Diagnostic]
) -> tuple[tuple[Field, ...], ...]:
    made: list[tuple[Field, ...]] = []
    sections = (
        param_fields(context),
        shared_fields(body),
        tile_fields(body),
        row_fields(body, regions),
        score_fields(body),
    )
    for fields in sections:
        try:
            made.append(tuple(fields))
        except CuError as error:
            faults += error.diagnostics
    return tuple(made)


def _work_bound(context: Context) -> dict[Expr, Expr]:
    """The schedule is asked for work below the number of tiles of all heads."""
    contract = context.contract
    of_keys = context.family.rows is Axis.KEY
    heads, length, tile = ("Hk", "Lk", contract.key_tile) if of_keys else ("Hq", "Lq", contract.query_tile)
    tiles = Call("ceil_div", (Name(length), tile))
    return {Name("work"): Binary("*", Binary("*", Name("B"), Name(heads)), tiles)}


def _with_bound(context: Context, fault: Diagnostic) -> Diagnostic:
    """A division of the schedule has its proof from the number of query tiles, which the contract says."""
    if fault.code != "CU426":
        return fault
    bound = print_expr(_work_bound(context)[Name("work")])
    note = Note(f"known here: `work` is below {bound}, and what `// @host` says of each field", context.schedule.span)
    return replace(fault, notes=(*fault.notes, note))


def _query_tile_faults(context: Context, found: list[Diagnostic]) -> Iterator[Diagnostic]:
    """CU428 where divisions of the schedule have no proof as the contract says another tile of work than the text has: `work` is
    bounded by it."""
    if not any(f.code == "CU426" for f in found):
        return
    schedule, _ = lift_schedule(context, TakenOnTrust(context.constants.number))
    rows = schedule and rows_of(schedule, frozenset(context.constants.used))
    name, what = (
        ("key_tile", "keys in a key tile")
        if context.family.rows is Axis.KEY
        else ("query_tile", "rows in a query tile")
    )
    tile: Expr = getattr(context.contract, name)
    said = known_number(tile, dict(context.instance.macros))
    has = rows and known_number(rows, {**context.constants.used})
    if schedule is not None and has is not None and has != said:
        message = f"`{name}` is {said}, and the kernel has {has} {what}"
        notes = (Note("the schedule", schedule.span),)
        yield Diagnostic(MISFIT, message, tile.span, notes)


def _unique(faults: list[Diagnostic]) -> list[Diagnostic]:
    """In the order of the text, each once."""
    seen: dict[tuple[str, str, int], Diagnostic] = {}
    for fault in faults:
        seen.setdefault((fault.message, fault.span.file.name, fault.span.start), fault)
    return sorted(seen.values(), key=lambda d: (d.span.file.name, d.span.start))
