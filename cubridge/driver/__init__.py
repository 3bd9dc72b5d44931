"""The stages put together: adapt, lift, transfer, lower, verify; `model` asks models, `suites` tries many, `sandbox` is a child
process for what is not trusted.

Enters: a reference and a kernel, as the user names them. Leaves: an adaptation with its report.
Open first: `adapt.py`."""
