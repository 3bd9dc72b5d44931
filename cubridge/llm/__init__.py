"""Language models as proposers. A reply is hostile text until judged: parsed here, never executed, checked by the driver."""
