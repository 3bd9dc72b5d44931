"""Proofs that a kernel computes what a reference says, for all sizes: what is read back from the kernel's regions, and part by
part the question whether it is the reference's. Open `prove` first."""
