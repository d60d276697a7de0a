"""Requests to stop or save, from signals, a STOP file or the program itself.

The flags are in the C++ core, because a long step reads them between micro-batches. Only the command line installs
handlers; in a notebook Ctrl-C remains a KeyboardInterrupt.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

from mudd_core import _core

_taken = False  # True if the command line has installed its handlers
_reason = "request"  # the reason of a stop that no signal requests


def request(reason: str) -> None:
    """Request a stop. reason: shown when the run stops."""
    global _reason
    _reason = reason
    _core.request_stop()


def _forget() -> None:
    """Clear all requests."""
    global _reason
    _reason = "request"
    _core.clear_requests()


@contextlib.contextmanager
def handlers() -> Iterator[None]:
    """Handle the signals of _core.stop_signals() and save_signal() while the block runs."""
    global _taken
    _forget()
    _core.install_stop_handlers()
    _taken = True
    try:
        yield
    finally:
        _taken = False
        _core.remove_stop_handlers()
        _forget()


def take_for_good(says: bool = True) -> None:
    """Handle the same signals until the process ends, so that a second signal always quits at once.

    says: print a line at the first request.
    """
    global _taken
    if not _taken:
        _core.install_stop_handlers(says)
        _taken = True


def taken() -> bool:
    """Return whether the command line's handlers are installed."""
    return _taken


def release() -> None:
    """Remove the handlers that take_for_good installed, if any, and clear their requests."""
    global _taken
    if _taken:
        _taken = False
        _core.remove_stop_handlers()
        _forget()


@contextlib.contextmanager
def interrupt_later() -> Iterator[None]:
    """Let Ctrl-C inside the block request a stop, and raise KeyboardInterrupt only when the block ends.

    This is for notebooks and programs without `handlers`. An interrupt between the update of the weights and the step
    counter would make the trainer repeat a step. This function does nothing outside the main thread, or if the program
    has its own handler of SIGINT.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or _taken or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    pressed = False

    def on_interrupt(*_: object) -> None:
        nonlocal pressed
        if pressed:  # a second Ctrl-C does not wait
            raise KeyboardInterrupt
        pressed = True
        _core.request_stop()

    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if pressed:
            _forget()
    if pressed:
        raise KeyboardInterrupt


def stop_reason(by_file: Callable[[], bool] | None = None) -> str | None:
    """Return the reason of a requested stop, or None. by_file: returns whether the run's STOP file exists."""
    if _core.stop_requested():
        number = _core.stop_signal()
        return signal.Signals(number).name if number else _reason
    return "STOP file" if by_file is not None and by_file() else None


def take_save_request() -> bool:
    """Return True once after a SIGUSR2."""
    return bool(_core.take_save_request())
