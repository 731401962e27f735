"""Run the command line: ``python -m duramen``."""

from duramen.cli import main

raise SystemExit(main())
