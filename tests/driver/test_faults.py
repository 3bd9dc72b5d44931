"""`cuirc faults` on a sample: what the table says of a kernel text."""

from __future__ import annotations

import json

from cubridge.driver.faults import FaultTable, fault_table


def test_the_table_of_a_sample() -> None:
    said: list[str] = []
    table = fault_table("sm80", "bf16", 64, said.append, step=16)
    text = table.to_text()
    assert table.missed == ()
    assert "operator" in text
    assert "no change by construction" in text
    assert all(place is None or place.startswith("sm80/attention_forward.cu:") for place in _places(table))
    assert {entry["verdict"] for entry in table.to_json()} >= {"caught", "no change"}


def _places(table: FaultTable) -> list[str | None]:
    return [entry["place"] for entry in json.loads(json.dumps(table.to_json()))]
