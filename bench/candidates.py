"""What is timed side by side: the table of peers, and the candidates of one problem, each with the reason where it is missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from bench import flash, peers
from bench.peers import Setting, Work
from cubridge.backend.gpu.timing import Timing

if TYPE_CHECKING:
    from types import ModuleType

Works = Mapping[str, Work]


@dataclass(frozen=True, slots=True)
class Peer:
    """`make`: by column, from a problem and the module of its reference. `column`: where the reason stands if that fails.
    `needs`: a module besides PyTorch, and `package`, what brings it."""

    column: str
    make: Callable[[Setting, ModuleType], Works]
    needs: str | None = None
    package: str | None = None
    backward: bool = True


def _one(column: str, work: Work | None) -> Works:
    return {} if work is None else {column: work}


PEERS: Final = {
    "eager": Peer("eager", lambda s, reference: {"eager": peers.eager(s, reference.attention)}),
    "sdpa": Peer("SDPA mask", lambda s, _: {f"SDPA {name}": work for name, work in peers.sdpa(s).items()}),
    "flex": Peer("Flex", lambda s, _: _one("Flex", peers.flex(s))),
    "flex-flash": Peer(
        "Flex FLASH", lambda s, _: _one("Flex FLASH", peers.flex(s, backend="FLASH")), "flash_attn.cute", "flash-attn-4"
    ),
    "fa3": Peer("FA3", lambda s, _: _one("FA3", flash.fa3(s)), "fa3_fwd_interface", "fa3-fwd", backward=False),
    "fa4": Peer("FA4", lambda s, _: _one("FA4", flash.fa4(s)), "flash_attn.cute", "flash-attn-4"),
}
COLUMNS: Final = ("eager", "SDPA cuDNN", "SDPA FA2", "SDPA mask", "Flex", "Flex FLASH", "FA3", "FA4", "sm80", "sm90a")


def importable(names: Sequence[str], say: Callable[[str], None]) -> list[str]:
    """Those whose packages are here; `say` hears of the others."""
    found: list[str] = []
    for name in names:
        peer = PEERS[name]
        try:
            if peer.needs is not None:
                import_module(peer.needs)
            found.append(name)
        except Exception as error:  # a package built for another machine fails in any way
            say(f"without {name} (pip install {peer.package}): {reason(error)}")
    return found


@dataclass(slots=True)
class Candidates:
    """What can be timed, and why the rest cannot."""

    works: dict[str, Work] = field(default_factory=dict[str, Work])
    faults: dict[str, Timing] = field(default_factory=dict[str, Timing])

    def add(self, column: str, make: Callable[[], Works]) -> None:
        try:
            self.works |= make()
        except Exception as error:  # a peer may fail in any way; it is reported beside the others
            self.faults[column] = Timing(fault=reason(error))

    def add_peers(self, names: Sequence[str], setting: Setting, reference: ModuleType) -> None:
        for peer in (PEERS[name] for name in names):
            self.add(peer.column, lambda peer=peer: peer.make(setting, reference))


def differences(works: Works, ours: str) -> dict[str, float]:
    """How far the results of each are from those of `ours`: the norm of the difference over the norm of ours. Nothing of one that
    does not run, which its timing tells."""
    try:
        right = _results(works[ours])
    except Exception:
        return {}
    found: dict[str, float] = {}
    for name in works.keys() - {ours}:
        try:
            pairs = list(zip(_results(works[name]), right, strict=True))
        except Exception:
            continue
        found[name] = math.hypot(*(_norm(a - b) for a, b in pairs)) / max(math.hypot(*(_norm(b) for b in right)), 1e-30)
    return found


def _results(work: Work) -> tuple[Tensor, ...]:
    made = work()
    return tuple(x.detach() for x in (made if isinstance(made, tuple) else (made,)) if isinstance(x, Tensor))


def _norm(x: Tensor) -> float:
    return float(torch.linalg.vector_norm(x, dtype=torch.float32))


def reason(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
