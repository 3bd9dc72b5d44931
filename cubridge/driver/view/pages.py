"""The page of a folder that `cuirc adapt` wrote, from its data alone: nothing in it is run or imported."""

from __future__ import annotations

from pathlib import Path

from cubridge.driver.outputs import BENCH, VIEW
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.show.page import page
from cubridge.show.view import read_speed, read_view


def folder_page(folder: Path) -> str:
    """With the times of `cuirc bench` where there are some. Errors: OSError; CU842."""
    path, times = folder / VIEW, folder / BENCH
    if folder.is_dir() and not path.exists():
        message = f"{folder} has no {VIEW}, which `cuirc adapt` writes"
        raise CuError(Diagnostic("CU842", message, help="adapt it again"))
    view = read_view(str(path), path.read_bytes())
    return page(view, read_speed(str(times), times.read_bytes()) if times.exists() else None)
