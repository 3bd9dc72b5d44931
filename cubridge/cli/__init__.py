"""`cuirc`: a thin layer over the library. Results on stdout, diagnostics on stderr, documented exit codes, no tracebacks.

0 done    1 input or pass failed    2 usage    3 numbers differ    4 refused as unsupported    5 a tool is missing
6 out of time or budget    70 a fault of cuirc itself"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence

from cubridge.cli.arguments import make_parser
from cubridge.ir.diagnostics import CuError, Diagnostic, render, to_json


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `cuirc` and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = make_parser().parse_args(given)
    try:
        return options.run(options)
    except CuError as error:
        report(error.diagnostics, options.diagnostics)
        return _failed(given, error.exit_code)
    except OSError as error:
        report((_of_system(error),), options.diagnostics)
        return _failed(given, 1)
    except KeyboardInterrupt:
        return _failed(given, 130)
    except Exception as error:
        report((_internal(error),), options.diagnostics)
        return _failed(given, 70)


def report(diagnostics: Sequence[Diagnostic], form: str) -> None:
    """Diagnostics on stderr, as text or as one JSON array."""
    text = json.dumps(to_json(diagnostics), indent=1) if form == "json" else render(diagnostics)
    print(text, file=sys.stderr)


def _failed(given: list[str], code: int) -> int:
    print(f"repeat: {shlex.join(['cuirc', *given])}", file=sys.stderr)
    return code


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
