"""The command line: `launch.py [command] --config=FILE [overrides]`; `main` runs one.

argv reads the arguments, help has their texts, commands has a function for each command; a tool (with arguments of its
own) is a module with main(arguments).
"""

from mudd_core.cli.entry import main

__all__ = ["main"]
