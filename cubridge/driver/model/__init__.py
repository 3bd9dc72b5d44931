"""The stages as a language model does them: what it is told, what of a reply counts. Open first: `stages.py`."""
