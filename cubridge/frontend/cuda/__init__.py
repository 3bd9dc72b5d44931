"""CUDA kernel text to CuIR: reads code by its types, its vocabulary and its tested helpers; keeps no copy of any kernel."""
