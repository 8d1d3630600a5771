"""The product's own applier under a seeded scheduler: one process, no threads, no wall clock, the real Lua files."""
