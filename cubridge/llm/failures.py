"""How providers fail, as diagnostics. Messages never hold a key: only the kind of error and the status are kept."""

from __future__ import annotations

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.llm.provider import MAX_REPLY_BYTES


def provider_failed(name: str, reason: str, help: str | None = None) -> CuError:
    return CuError(Diagnostic("CU701", f"{name} failed: {reason}", help=help))


def out_of_time(name: str, seconds: float) -> CuError:
    return CuError(
        Diagnostic("CU702", f"{name} gave no reply within {seconds:g} s", help="raise --model-timeout, or run again"),
        exit_code=6,
    )


def missing_sdk(package: str, extra: str) -> CuError:
    return CuError(
        Diagnostic("CU704", f"the package `{package}` is not installed", help=f"pip install 'cubridge[{extra}]'"),
        exit_code=5,
    )


def too_long(name: str) -> CuError:
    return CuError(Diagnostic("CU703", f"{name} gave a reply of more than {MAX_REPLY_BYTES} bytes"))


def checked_text(name: str, text: str) -> str:
    """`text`, if it is a reply at all, as text that can be written: no half surrogates. Errors: CU703."""
    if not text.strip():
        raise CuError(Diagnostic("CU703", f"{name} gave an empty reply"))
    data = text.encode("utf-8", errors="replace")
    if len(data) > MAX_REPLY_BYTES:
        raise too_long(name)
    return data.decode("utf-8")
