"""`cuirc`: a thin layer over the library. Results on stdout, diagnostics on stderr, documented exit codes, no tracebacks.

0 done    1 input or pass failed    2 usage    3 numbers differ    4 refused as unsupported    5 a tool is missing
6 out of time or budget    70 a fault of cuirc itself"""

from __future__ import annotations

import gc
import json
import shlex
import sys
from collections.abc import Sequence

from cubridge.cli.arguments import make_parser
from cubridge.cli.files import open_streams
from cubridge.ir.diagnostics import CuError, Diagnostic, render, to_json


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `cuirc` and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    gc.set_threshold(200_000, 50, 100)  # a run is short, and most of what it makes lives to its end
    open_streams()
    form = "text"
    try:
        options = make_parser().parse_args(given)
        form = options.diagnostics
        return options.run(options)
    except CuError as error:
        report(error.diagnostics, given, form)
        return error.exit_code
    except OSError as error:
        report((_of_system(error),), given, form)
        return 1
    except KeyboardInterrupt:
        report((), given, form)
        return 130
    except Exception as error:
        report((_internal(error),), given, form)
        return 70


def report(diagnostics: Sequence[Diagnostic], given: Sequence[str], form: str) -> None:
    """Diagnostics and the command that repeats them on stderr, as text or as one JSON object."""
    repeat = shlex.join(["cuirc", *given])
    if form == "json":
        print(json.dumps({"diagnostics": to_json(diagnostics), "repeat": repeat}, indent=1), file=sys.stderr)
        return
    if diagnostics:
        print(render(diagnostics), file=sys.stderr)
    print(f"repeat: {repeat}", file=sys.stderr)


def _of_system(error: OSError) -> Diagnostic:
    what = error.strerror or str(error)
    return Diagnostic("CU110", f"{error.filename}: {what}" if error.filename else what)


def _internal(error: Exception) -> Diagnostic:
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place is not None else "unknown place"
    return Diagnostic(
        "CU999",
        f"a fault of cuirc itself: {type(error).__name__}: {error} ({where})",
        help="please report it with the command below",
    )
