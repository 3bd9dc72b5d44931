"""From CuIR back to CUDA: differences, the text of regions, patches; and what compiles, emulates and runs kernels."""
