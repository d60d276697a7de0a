"""Print a script with which bash or zsh completes commands, options, fields, configs and runs.

    python3 launch.py completion bash > mudd_completion.sh
    python3 launch.py completion zsh > _mudd

In bash, type `. ./mudd_completion.sh`, or write that line with the whole path into ~/.bashrc. In zsh, move _mudd into a
folder of fpath, or type `. ./_mudd` after compinit.

The script completes `./launch.py`, `mudd` and `python launch.py`. It contains the names of this version, so Tab starts
no Python. Print it again after an update, or after a new file in configs/.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudd_core import __version__
from mudd_core.base.errors import UserError
from mudd_core.cli.completion.script import SHELLS, script
from mudd_core.cli.completion.tables import known_names
from mudd_core.config.suggest import nearest
from mudd_core.config.tool_arguments import ToolArguments


def main(words: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    parser = ToolArguments("completion", __doc__ or "")
    parser.add_argument("shell", metavar="bash|zsh", help="the shell that reads the script")
    shell = parser.options(words).shell
    if shell not in SHELLS:
        expected = " or ".join(SHELLS)
        raise UserError(f"[completion] expected {expected}, got '{shell}'{nearest(shell, SHELLS)}")
    print(script(shell, known_names(), __version__), end="")
    return 0
