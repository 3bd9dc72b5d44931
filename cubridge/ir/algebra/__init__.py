"""The algebra of integers: what the form of an expression shows about its values, for every stage that asks.

Enters: expressions. Leaves: their sums in normal form, signs, intervals, the truth of predicates over boxes.
Open first: `poly.py`, the sums; then `signs.py`, what is never negative, and `interval.py`, what values lie between."""
