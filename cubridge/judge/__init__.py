"""Says whether a kernel is right: problems with a known answer, how far a result may be from it, wrong kernels that must fail.

Enters: a kernel (CuIR, text or machine code) and the attention that it should compute. Leaves: `findings.py`.
Open first: `checker.py`; `bound.py` derives how much error is allowed, `faults` breaks kernels to see who notices."""
