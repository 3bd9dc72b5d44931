"""The trusted base: what is believed of wrappers and helpers, and the GPU tests of each belief."""
