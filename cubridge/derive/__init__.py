"""In: an AttentionSpec. Out: its GradientSpec, derived and never asked for, and the same as text. Open `gradient.py` first."""
