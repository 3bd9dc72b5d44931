"""CuBridge: adapt an expert CUDA attention kernel to the attention that a PyTorch function describes."""

__version__ = "0.1.0"
