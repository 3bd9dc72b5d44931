"""The folder that `cuirc adapt` wrote, read back: nothing in it is trusted before it is checked again."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cubridge.backend.text.lower import Patched
from cubridge.driver.adapted import Adapted
from cubridge.driver.backward import check_backward
from cubridge.driver.backward_folder import open_backward
from cubridge.driver.check import check_adapted
from cubridge.driver.kernels import ChosenKernel, choose_kernel
from cubridge.driver.lift import lift_kernel
from cubridge.driver.lift_source import lift_verified
from cubridge.driver.model.lift_judge import JudgedLift
from cubridge.driver.outputs import REFERENCE
from cubridge.driver.reference import TracedReference, read_reference
from cubridge.driver.report import RULES, Report
from cubridge.driver.sandbox.texts import tools_of
from cubridge.engine.threads import one_thread
from cubridge.frontend.reference.load import Reference
from cubridge.ir.canonical import canonical
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Kernel
from cubridge.ir.parser import parse
from cubridge.ir.source import SourceFile
from cubridge.ir.spec import Shape
from cubridge.passes.own import all_passes
from cubridge.passes.pipeline import parse_toml


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a report says of how it was made. `reference`: the file, None for a live callable."""

    reference: str | None
    function: str
    kernel: str
    dtype: str
    shape: Shape


def read_record(folder: Path) -> Recorded:
    """Errors: OSError; CU842 for a report that `cuirc adapt` did not write, or of a kernel that was rejected."""
    path = folder / "report.json"
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        shape = Shape(*(int(n) for n in str(data["shape"]).split(",")))
        recorded = Recorded(data["reference_file"], data["reference"], data["kernel"], data["dtype"], shape)
        accepted = bool(data["accepted"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CuError(Diagnostic("CU842", f"{path} is no report of cuirc adapt")) from error
    if not accepted:
        message = f"{path} says that a check rejects the kernel, which was not written"
        raise CuError(Diagnostic("CU842", message, help="see which check in report.md"))
    return recorded


def claimed_reference(file: Path) -> TracedReference | None:
    """What target.cuir in a folder of `cuirc adapt` claims to compute, by the report beside it; None for any other file.
    Errors: as `open_folder`."""
    if file.name != "target.cuir" or not (file.parent / "report.json").is_file():
        return None
    return _read_again(file.parent, read_record(file.parent), None)


def open_folder(folder: Path, live: Reference | TracedReference | None = None) -> Adapted:
    """The adaptation as its files say it: kernel.cu is lifted again, and must say what target.cuir says. `live`: the callable
    that was adapted, where it was one, perhaps read already. Errors: OSError; CU842; CU843 where text and CuIR disagree; what
    reading its parts raises."""
    recorded = read_record(folder)
    kernel = choose_kernel(recorded.kernel)
    lifted = lift_verified(kernel, recorded.dtype, recorded.shape.D)
    source = SourceFile.read(folder / "kernel.cu")
    written = parse(SourceFile.read(folder / "target.cuir"))
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    lowered_by = str(report.get("lowered_by", RULES))
    has_round_trip = lowered_by == RULES and not isinstance(lifted, JudgedLift)
    target = _said(kernel, recorded, source, written, has_round_trip)
    reference = _read_again(folder, recorded, live)
    pipeline = parse_toml(SourceFile.read(folder / "pipeline.toml"), all_passes())
    changed = report["changed"]
    patched = Patched(
        source.data, (folder / "kernel.patch").read_bytes(), tuple(changed["regions"]), changed["lines_added"],
        changed["lines_removed"],
    )  # fmt: skip
    return Adapted(
        reference=reference,
        kernel=kernel,
        lifted=lifted,
        target=target,
        pipeline=pipeline,
        patched=patched,
        text=kernel.with_text(source),
        dtype=recorded.dtype,
        shape=recorded.shape,
        remarks=(),
        proposer=str(report.get("proposer", RULES)),
        lowered_by=lowered_by,
    )


def _read_again(folder: Path, recorded: Recorded, live: Reference | TracedReference | None) -> TracedReference:
    """Errors: CU842 for a live callable that is not given; CU47x to CU49x."""
    if isinstance(live, TracedReference):
        return live
    if live is not None:
        return read_reference(live.function, None, recorded.shape, live.extra_inputs, recorded.dtype)
    if recorded.reference is None:
        help_ = "give it: cubridge.load(folder, reference=..)"
        raise CuError(Diagnostic("CU842", f"{folder / 'report.json'} reports on a live callable", help=help_))
    path = _file_of(folder, Path(recorded.reference))
    reference = read_reference(path, recorded.function, recorded.shape, dtype=recorded.dtype)
    return replace(reference, path=recorded.reference)


def _file_of(folder: Path, named: Path) -> Path:
    """The file that was adapted: where it was, which lets it import what lies beside it, if that still holds what was adapted;
    else the copy in the folder."""
    copy = folder / REFERENCE
    if not copy.is_file() or (named.is_file() and named.read_bytes() == copy.read_bytes()):
        return named
    return copy


def _said(
    kernel: ChosenKernel, recorded: Recorded, source: SourceFile, written: Kernel, has_round_trip: bool
) -> Kernel:
    """The CuIR of the text, which must be the one beside it; of a text that lifting cannot read, which a model wrote or read, the
    CuIR that it was written for. Errors: CU843."""
    try:
        target = lift_kernel(kernel, recorded.dtype, recorded.shape.D, source).kernel
    except CuError:
        if has_round_trip:
            raise
        return written
    if canonical(written) != canonical(target):
        message = f"{source.name} does not say what target.cuir says"
        raise CuError(Diagnostic("CU843", message, help="one of them was changed; run cuirc adapt again"))
    return target


def recheck(folder: Path) -> Report:
    """Check the files of a folder again, those of its backward pass too; a text that a user or a model wrote in a child process.
    Errors: as `open_folder` and `open_backward`."""
    adapted = open_folder(folder)
    lowered = open_backward(folder, adapted)
    by_rules = adapted.lowered_by == RULES
    with ThreadPoolExecutor(2) as pool, one_thread():
        report = adapted.report(check_adapted(adapted, pool, tools_of(adapted.kernel, by_rules)))
    return report if lowered is None else replace(report, backward=check_backward(adapted, lowered).report)
