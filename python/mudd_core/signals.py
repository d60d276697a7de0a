"""Requests to stop or save, from signals, a STOP file or the program itself.

The flags live in the core, where a long step reads them between micro-batches. Handlers are installed by the
command line only; in a notebook Ctrl-C stays a KeyboardInterrupt.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

from mudd_core import _core


@contextlib.contextmanager
def handlers() -> Iterator[None]:
    """Take SIGINT, SIGTERM, SIGUSR1 (stop) and SIGUSR2 (save) while the block runs."""
    _core.clear_requests()
    _core.install_stop_handlers()
    try:
        yield
    finally:
        _core.remove_stop_handlers()
        _core.clear_requests()


def stop_reason(stop_file: Path | None) -> str | None:
    """Who asked for a stop, or None. A STOP file is taken away: the same command shall run on."""
    if _core.stop_requested():
        number = _core.stop_signal()
        return signal.Signals(number).name if number else "request"
    if stop_file is not None and stop_file.exists():
        stop_file.unlink(missing_ok=True)
        return "STOP file"
    return None


def take_save_request() -> bool:
    """True once after a SIGUSR2."""
    return bool(_core.take_save_request())
