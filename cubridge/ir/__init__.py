"""CuIR: the typed representation that every stage of CuBridge reads and writes. Imports nothing else of cubridge."""
