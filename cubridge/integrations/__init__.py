"""Other libraries' ways to an attention. In: a reference. Out: what they call. One file a library, which is an optional extra; open
`transformers.py` first."""
