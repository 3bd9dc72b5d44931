"""What the page of an adaptation shows, collected from what its stages made; `cubridge/show` draws it.

Enters: an `Adapted` and its `Report`. Leaves: a `View`. Open first: `collect.py`."""
