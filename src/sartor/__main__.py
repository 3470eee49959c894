"""``python -m sartor``."""

from sartor.cli.main import main

main()
