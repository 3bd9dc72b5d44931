"""Measured cells of a table in a file, one a line: a run that was killed, or is out of time, goes on; parts become one table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from bench.candidates import PEERS
from bench.row import Row
from cubridge.backend.gpu.timing import Timing
from cubridge.ir.spec import Shape

if TYPE_CHECKING:
    from cubridge.backend.launch.device import Device

Direction = Literal["forward", "backward"]


@dataclass(frozen=True, slots=True)
class Cell:
    direction: Direction
    variant: str
    shape: Shape
    inputs: str = "normal"

    def __str__(self) -> str:
        return f"{self.direction} {self.variant} {self.shape} {self.inputs}"


@dataclass(frozen=True, slots=True)
class Setup:
    """What times must share to stand in one table."""

    peers: tuple[str, ...]
    machine: str

    @staticmethod
    def of(line: Mapping[str, Any]) -> Setup:
        return Setup(tuple(line["peers"]), line["machine"])


def setup_here(peers: Sequence[str], device: Device) -> Setup:
    where = device.torch_device
    name = torch.cuda.get_device_name(where) if where.type == "cuda" else "CPU"
    packages = dict.fromkeys(p for name in peers if (p := PEERS[name].package))
    return Setup(tuple(peers), ", ".join([name, *(f"{p} {v}" for p in ("torch", *packages) if (v := _version(p)))]))


def _version(package: str) -> str:
    """Of what was put on the path by hand, none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


class Kept:
    """Rows by cell, in a file. A cell counts as measured in the same setup alone: times of two runs are not one table."""

    def __init__(self, path: Path, setup: Setup) -> None:
        self.path, self.setup = path, setup
        self.rows: dict[str, Row] = {}
        text = path.read_text() if path.exists() else ""
        for line in _lines(text):
            if Setup.of(line) == setup:
                timings = {name: Timing(**t) for name, t in line["row"].pop("timings").items()}
                self.rows[line["cell"]] = Row(**line["row"], timings=timings)
        self.cut = bool(text) and not text.endswith("\n")

    @staticmethod
    def read(*paths: Path) -> Kept:
        """The rows of runs that share a setup, the last one of each file. Errors: ValueError where they share none."""
        setups = {Setup.of(lines[-1]) for path in paths if (lines := list(_lines(path.read_text())))}
        if len(setups) != 1:
            raise ValueError(f"these runs share no setup: {', '.join(map(str, setups)) or 'nothing was measured'}")
        (setup,) = setups
        first, *others = (Kept(path, setup) for path in paths)
        for other in others:
            first.rows |= other.rows
        return first

    def add(self, cell: Cell, row: Row) -> None:
        self.rows[str(cell)] = row
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"cell": str(cell), **asdict(self.setup), "row": asdict(row)})
        with self.path.open("a") as file:
            file.write(f"\n{line}\n" if self.cut else f"{line}\n")
        self.cut = False

    def of(self, cells: Iterable[Cell]) -> Iterator[tuple[Cell, Row]]:
        return ((cell, self.rows[str(cell)]) for cell in cells if str(cell) in self.rows)

    def left(self, cells: Iterable[Cell]) -> list[Cell]:
        return [cell for cell in cells if str(cell) not in self.rows]


def _lines(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:  # the run was killed as it wrote
            continue
