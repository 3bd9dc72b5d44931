"""One vendor per file."""
