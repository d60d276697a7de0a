"""The commands of a conversation, lines that start with a slash."""

from __future__ import annotations

import sys
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.cli.chat.history import History
from mudd_core.config.suggest import nearest

_COMMANDS = {
    "/reset": "start a new conversation",
    "/save FILE": "append the conversation to a jsonl file that tune reads",
    "/help": "print this list",
    "/quit": "end the program; Ctrl-D does the same",
}


def is_command(line: str) -> bool:
    """Return True for a line that is a command and not a message."""
    return line.startswith("/")


def run_command(history: History, line: str) -> bool:
    """Run a command; return True if it ends the program. Raise UserError for a wrong one."""
    name, _, rest = line.strip().partition(" ")
    names = [one.partition(" ")[0] for one in _COMMANDS]
    if name == "/quit":
        return True
    if name == "/help":
        say("\n".join(f"  {one:<12} {text}" for one, text in _COMMANDS.items()))
    elif name == "/reset":
        history.reset()
        say("new conversation")
    elif name == "/save":
        if not rest.strip():
            raise UserError("[chat] /save: expected a file after it, such as /save chat.jsonl")
        history.save(file := Path(rest.strip()).expanduser())
        say(
            f"appended the conversation to {file}: {history.turns} {'turn' if history.turns == 1 else 'turns'}"
        )
    else:
        raise UserError(
            f"[chat] unknown command '{name}'{nearest(name, names)}; /help lists the commands, and a line that starts "
            "with a space is a message"
        )
    return False


def say(text: str) -> None:
    """Print a line for the user on standard error."""
    print(text, file=sys.stderr, flush=True)
