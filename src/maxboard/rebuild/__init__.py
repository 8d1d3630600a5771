"""Boards from the log: fold it in columns, load, check, save. The fold's rules are those of ``maxboard.pipeline``."""
