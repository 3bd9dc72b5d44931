"""Kernel text to machine code with NVRTC, kept by content. Open first: `compiler.py`."""
