"""What each ATen operation is, element by element: tables from operation name to handler."""

from __future__ import annotations

from typing import Final

from cubridge.frontend.reference.lift import Handler
from cubridge.frontend.reference.ops.creation import CREATION
from cubridge.frontend.reference.ops.elementwise import ELEMENTWISE
from cubridge.frontend.reference.ops.gathers import GATHERS
from cubridge.frontend.reference.ops.joins import JOINS
from cubridge.frontend.reference.ops.reductions import REDUCTIONS
from cubridge.frontend.reference.ops.scatters import SCATTERS
from cubridge.frontend.reference.ops.views import VIEWS

HANDLERS: Final[dict[str, Handler]] = {
    **ELEMENTWISE, **VIEWS, **JOINS, **CREATION, **GATHERS, **SCATTERS, **REDUCTIONS
}  # fmt: skip
