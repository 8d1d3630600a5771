"""The write path. ``applier`` shows the whole flow; the other modules are its steps, in travel order."""
