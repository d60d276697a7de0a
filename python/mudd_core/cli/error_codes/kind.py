"""An entry of the table of error codes."""

from __future__ import annotations

from dataclasses import dataclass

# Errors that are no class of mudd_core.
OWN_FILE, FULL_MEMORY, INTERNAL = "an error in a user's file", "MemoryError", "any other exception"


@dataclass(frozen=True)
class Kind:
    """A kind of error.

    error: the exception class. places: the places of messages for which this entry replaces the class's own, each a
    section as `data`, or a whole place as `eval.batch_size`. happened, mend: what it means, and what to do. page: of
    docs/.
    """

    code: str
    error: str
    title: str
    happened: str
    mend: str
    page: str
    places: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """The exit code of the command line."""
        return 2 if self.code.startswith("MC2") else int(self.code[2:4])
