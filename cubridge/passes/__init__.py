"""Transfer: from the source kernel to the target kernel by passes over CuIR. Imports nothing but `ir`."""
