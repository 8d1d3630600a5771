"""``python -m maxboard``."""

from maxboard.cli import main

main()
