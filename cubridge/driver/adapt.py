"""All stages: a reference and a kernel in, the patched kernel and what was shown of it out."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from cubridge.driver.checks import CheckedKernel, check_kernel, compile_patched
from cubridge.driver.kernels import ChosenKernel, choose_kernel
from cubridge.driver.lift import lift_verified
from cubridge.driver.lower import lower_kernel, patched_source
from cubridge.driver.report import Changed, Report
from cubridge.driver.transfer import transfer
from cubridge.ir.printer import to_text
from cubridge.ir.spec import DEFAULT_SHAPE, Shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cubridge.backend.lower import Patched
    from cubridge.frontend.cuda.lift import Lifted
    from cubridge.ir.nodes import Kernel
    from cubridge.passes.pipeline import Pipeline
