"""What the compiler says of a kernel, and how fast it was where a GPU was there."""

from __future__ import annotations

from cubridge.show.html import Html, element, joined
from cubridge.show.plots import library_is_missing, speed_plot
from cubridge.show.tables import table
from cubridge.show.view import Speed, View


def compiled_section(view: View) -> Html:
    if not view.forms:
        return element("p", "It was not compiled.")
    head = ("architecture", "macros", "registers", "bytes spilled", "bytes of shared memory")
    rows = ((f.arch, f.macros, str(f.registers), str(f.spill_bytes), str(f.shared_bytes)) for f in view.forms)
    return table(head, rows)


def speed_section(speed: Speed | None) -> Html:
    if speed is None:
        return element(
            "p", "Not timed: ", element("code", "cuirc bench DIR"), " times it on a GPU, and this page then shows it."
        )
    head = ("", "ms", "least", "most", "TFLOP/s")
    rows = (
        (t.name, t.fault, "", "", "") if t.fault is not None
        else (t.name, f"{t.median_ms:.3f}", f"{t.least_ms:.3f}", f"{t.most_ms:.3f}", f"{t.tflops:.0f}")
        for t in speed.timed
    )  # fmt: skip
    text = element("p", f"On {speed.device} at {speed.shape} (B, Hq, Hk, Lq, Lk, D), over visible elements.")
    missing = library_is_missing()
    plot = element("p", missing, class_="quiet") if missing else element("figure", speed_plot(speed))
    return joined((text, plot, table(head, rows)))
