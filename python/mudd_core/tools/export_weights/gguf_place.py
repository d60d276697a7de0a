"""The place of an exported GGUF: a folder with model.gguf, or one file. It appears complete or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mudd_core import _core
from mudd_core.base.errors import SaveError, write_reason
from mudd_core.base.paths import file_ending
from mudd_core.checkpoint.gguf_file import MAGIC
from mudd_core.checkpoint.steps import new_id
from mudd_core.checkpoint.weights_folder import Last
from mudd_core.provenance.statement import NAME as STATEMENT
from mudd_core.provenance.statement import PREDICATE
from mudd_core.tools.export_weights.model_card import NAME as CARD
from mudd_core.tools.export_weights.model_card import WRITTEN

SUFFIX = ".gguf"
_MODELFILE = "Modelfile"
_HEAD = 4096  # bytes of a file in which an export names its program


@dataclass(frozen=True)
class GgufPlace:
    """The place of a GGUF file, its Modelfile and, in a folder, its model card.

    to: the value of --to. is_file: it names a file and not a folder.
    """

    to: Path
    is_file: bool
    stem: str = "model"

    @property
    def file(self) -> Path:
        """The GGUF file."""
        return self.to if self.is_file else self.to / f"{self.stem}{SUFFIX}"

    @property
    def modelfile(self) -> Path:
        """The Modelfile for Ollama."""
        return self.to.with_suffix(f".{_MODELFILE}") if self.is_file else self.to / _MODELFILE

    @property
    def statement(self) -> Path:
        """The statement about the weights."""
        return self.to.with_suffix(f".{STATEMENT}") if self.is_file else self.to / STATEMENT

    def write(self, write: Callable[[Path], None], modelfile: bytes, card: bytes, last: Last) -> None:
        """Write all files and replace earlier ones. write: called with the path of the GGUF file to create. last: as
        in write_folder, with the model card as one of the files.

        Raise SaveError if the disk is full or rejects a write; nothing is left then.
        """
        to = self.to.absolute()
        try:
            _core.make_folders(str(to.parent))
            _core.remove_dead_temporaries(str(to.parent), to.name)
            own = new_id()
            writer = _core.AtomicFolder(str(to.parent), to.name, own)
            work = to.parent / f"{to.name}.tmp-{own}"
            try:
                write(work / self.file.name)
                texts = (
                    {self.modelfile.name: modelfile}
                    if self.is_file
                    else {self.modelfile.name: modelfile, CARD: card}
                )
                texts |= last(work, texts)
                card = texts.pop(CARD, card)
                texts = {
                    self.statement.name if name == STATEMENT else name: one for name, one in texts.items()
                }
                for name, text in texts.items():
                    _core.replace_file(str(work / name), text)
                if self.is_file:
                    for file in (self.modelfile.absolute(), self.statement.absolute(), to):
                        os.replace(work / file.name, file)
                elif to.exists():
                    writer.seal(CARD, card.decode())
                    writer.replace()
                else:
                    writer.commit(CARD, card.decode())
            finally:
                del writer  # delete uncommitted files now, not when the traceback is freed
        except OSError as error:
            raise SaveError(f"[export] {self.to} could not be written: {write_reason(error)}") from error


def names_file(to: str) -> bool:
    """Return True if --to names a GGUF file; a name that ends with a slash is a folder."""
    return file_ending(to) == SUFFIX


def is_exported_file(file: Path) -> bool:
    """Return True for a GGUF file, a Modelfile or a statement that an export wrote."""
    if file.is_symlink() or not file.is_file():
        return False
    with open(file, "rb") as data:
        head = data.read(_HEAD)
    if file.name.endswith(f".{STATEMENT}"):
        return PREDICATE.encode() in head
    return WRITTEN.encode() in head and (head.startswith(MAGIC) or file.name.endswith(_MODELFILE))


def modelfile(place: GgufPlace, template: str, stops: list[str], base: str = "") -> bytes:
    """Return the Modelfile of a GGUF file. base: of an adapter.

    template: a template in Ollama's language; empty if Ollama has to find one. stops: strings that end an answer.
    """
    source = f"./{place.file.name}"
    lines = [f"# {place.file.name}, {WRITTEN}", f"# ollama create NAME -f {place.modelfile.name}"]
    if base:
        lines += ["# FROM: the name of the base in Ollama, its GGUF file or its folder", f"FROM {base}"]
    lines += [f"{'ADAPTER' if base else 'FROM'} {source}"]
    lines += [f'TEMPLATE """{template}"""'] if template else []
    # A Modelfile has no way to write these characters.
    lines += [f'PARAMETER stop "{stop}"' for stop in stops if not set(stop) & {'"', "\n"}]
    return ("\n".join(lines) + "\n").encode()
