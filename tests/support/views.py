"""A small view of an adaptation that nobody made, and one whose texts are all hostile."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from cubridge.show.png import png
from cubridge.show.view import (
    Asked,
    Bar,
    Change,
    Form,
    Formula,
    Mask,
    Plane,
    Proof,
    Refusal,
    Run,
    Speed,
    Timed,
    Timeline,
    View,
    Work,
)

HOSTILE: Final = '</code></style><script>window.hacked = 1</script><img src=x onerror="window.hacked = 2">\'&$x^{$\x07'


def small_view() -> View:
    elements = png([bytes(2 if j <= i else 0 for j in range(40)) for i in range(40)])
    plane = Plane("every batch and head", elements, 1, ("+.", "#+"), ((0,), (1, 0)))
    run = Run("value engine", "1,1,1,40,40,64", "random", 0.4, 0.1, 2.0, True, "", (0.1, 0.4, None, 0.2), 10)
    return View(
        kernel="sm80", arch="sm_80", dtype="bf16", shape="1,1,1,40,40,64", accepted=True, verdict="emulated", basis="proved", by=(),
        pipeline="dce",
        asked=Asked("attention", "causal.py", "def attention(q, k, v):\n    return q\n", 3, (Formula("mask", "j <= i", 4),)),
        mask=Mask(40, 40, 32, 32, (plane,), 0), schedule=(Work(0, 0, 32, 2), Work(0, 0, 0, 1)), more_work=0,
        timeline=Timeline(("a block", "copies"), (Bar(0, 0, 8, "start", "copy", True), Bar(1, 8, 90, "copy", "copy", True)), (2,)),
        changes=(Change("mask", (" def mask(s):", "-    a", "+    b"), ("-x;", "+y;")),),
        cuir=(" cuir(version=1)", "-    a", "+    b"),
        runs=(run,), refusals=(Refusal("mask dropped", "value engine", "far off"), Refusal("mask one row late", None, "")),
        proofs=(Proof("mask", True, "proved"), Proof("score", False, "tested")),
        forms=(Form("sm_80", "HEAD_DIM=64", 168, 0, 1024),), not_checked=("no GPU",),
    )  # fmt: skip


def small_speed() -> Speed:
    return Speed(
        "a GPU",
        "2,32,32,8192,8192,64",
        (Timed("cubridge", 1.0, 0.9, 1.1, 500.0, None), Timed("eager", 0.0, 0.0, 0.0, 0.0, "memory")),
    )


def hostile(data: Any) -> Any:
    """The same with `HOSTILE` added to every text."""
    if isinstance(data, str):
        return data + HOSTILE
    if isinstance(data, tuple):
        return tuple(map(hostile, data))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if is_dataclass(data) and not isinstance(data, type):
        return replace(data, **{f.name: hostile(getattr(data, f.name)) for f in fields(data)})
    return data
