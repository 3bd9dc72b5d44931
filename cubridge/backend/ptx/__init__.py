"""PTX on a CPU: what a compiler made of a kernel, run and judged without a GPU.

PTX text enters (`parser` makes a `program`), `encode` turns it into the arrays that the native machine runs, `machine` runs them.
The meaning of each instruction is a row of the tables in native/rows_*.cpp; native/machine.h says what is judged. Start there.
"""
