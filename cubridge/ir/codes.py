"""Every diagnostic code with its one-line explanation. Codes go by stage; a test finds any that no case shows."""

from __future__ import annotations

from typing import Final

CODES: Final[dict[str, str]] = {
    # CU1 parse
    "CU101": "the text is not CuIR syntax",
    "CU102": "the text carries no CuIR version, or another one",
    "CU103": "a name, operation or keyword argument that CuIR does not have",
    # CU2 verify
    # CU3 interpret
    "CU301": "an expression has no value here",
    # CU4 frontend
    # CU5 pass
    # CU6 patch
    "CU601": "a source map is older than its text",
    # CU7 model reply
    # CU8 compile and launch
}
