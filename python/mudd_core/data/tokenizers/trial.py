"""Try a tokenizer.json in a child process before the `tokenizers` library loads it in this process.

Some files make that library abort, loop or exhaust the memory, and no `except` can catch that. The child has limits of
memory and time, so such a file raises a FormatError. Vocabularies that `train_bpe` wrote need no trial.
"""

from __future__ import annotations

import hashlib
import signal
import sys
from itertools import pairwise
from pathlib import Path

from mudd_core.base.child import Child
from mudd_core.base.errors import FormatError, UserError
from mudd_core.data.tokenizers.bpe_pieces import BYTE_LEVEL, MODEL, SPECIAL_TOKEN
from mudd_core.data.tokenizers.check import TokenizerJson

PROBE = Path(__file__).with_name("probe.py")
BASE_MEMORY = 2**29  # bytes of address space, for Python and the library
MEMORY_PER_BYTE = (
    40  # bytes of memory per byte of the file; the vocabularies of Llama 3 and GPT-2 need about 12
)
BASE_SECONDS = 20
BYTES_PER_SECOND = 2**20
# One thread and one arena, so that the address space is close to the memory in use.
CHILD_ENVIRONMENT = {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "MALLOC_ARENA_MAX": "1"}

_tried: set[str] = set()  # SHA-256 of the files that passed in this process

_OWN_FORM = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "normalizer": None,
    "pre_tokenizer": {**BYTE_LEVEL, "add_prefix_space": False},
    "post_processor": None,
    "decoder": {**BYTE_LEVEL, "add_prefix_space": True},
}


def has_own_form(content: TokenizerJson) -> bool:
    """Return whether a checked tokenizer.json has the form that `train_bpe` writes, with any vocabulary and merges."""
    rest = {key: value for key, value in content.items() if key not in ("model", "added_tokens")}
    model = {key: value for key, value in content["model"].items() if key not in ("vocab", "merges")}
    added = content.get("added_tokens") or []
    return (
        rest == _OWN_FORM
        and model == MODEL
        and len(added) == 1
        and {k: v for k, v in added[0].items() if k not in ("id", "content")} == SPECIAL_TOKEN
    )


def try_in_child(data: bytes, file: str) -> None:
    """Load, encode and decode with `data` in a child process, and return if the `tokenizers` library succeeds.

    Raise FormatError with the library's reason, the signal or the exceeded limit if it fails. A success is remembered
    by the SHA-256 of `data` until this process ends.
    """
    digest = hashlib.sha256(data).hexdigest()
    if digest in _tried:
        return
    seconds = BASE_SECONDS + len(data) // BYTES_PER_SECOND
    memory = BASE_MEMORY + MEMORY_PER_BYTE * len(data)
    try:
        child = Child(PROBE, [str(memory), str(seconds)], environment=CHILD_ENVIRONMENT, hears_errors=True)
        said, errors = child.all_output(data, seconds)
    except TimeoutError:
        raise _refused(file, f"it takes longer than {seconds} s") from None
    except OSError as e:
        raise UserError(
            f"[data.tokenizer] {file}: expected a Python interpreter that can be started, got "
            f"{sys.executable!r}: {e.strerror}"
        ) from None
    if code := child.code():
        reason = _reason(
            code, said.decode("utf-8", "replace"), errors.decode("utf-8", "replace"), memory, seconds
        )
        raise _refused(file, reason)
    _tried.add(digest)


def mark_as_tried(data: bytes) -> None:
    """Treat `data` as tried, because the process that started this one has tried it."""
    _tried.add(hashlib.sha256(data).hexdigest())


def _refused(file: str, reason: str) -> FormatError:
    return FormatError(file, 0, f"the tokenizers library refuses it: {reason}; use another tokenizer.json")


def _reason(code: int, said: str, errors: str, memory: int, seconds: int) -> str:
    if code == 1 and said.strip():
        return said.strip()
    if "memory allocation" in errors or "MemoryError" in errors:
        return f"it needs more than {memory >> 20} MiB"
    if -code in (signal.SIGXCPU, signal.SIGKILL):
        return f"it takes longer than {seconds} s"
    if code < 0:
        name = signal.Signals(-code).name
        return f"it ends the process with {name}: {_panic(errors)}"
    return f"the trial ended with code {code}: {errors.strip()[-200:]}"


def _panic(errors: str) -> str:
    """Return the line of a Rust panic that contains the reason."""
    lines = errors.splitlines()
    for line, following in pairwise(lines):
        if "panicked at" in line:
            return following.strip()[:200]
    return (lines[-1] if lines else "no message").strip()[:200]
