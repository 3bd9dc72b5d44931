"""Language models as proposers. A reply is hostile text until judged: parsed here, never executed, checked by the driver.

Enters: a prompt with named slots. Leaves: a reply's fenced blocks, a transcript, what it cost.
Open first: `provider.py`."""
