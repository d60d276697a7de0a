"""Requests to stop or save, from signals, a STOP file or the program itself.

The flags live in the core, where a long step reads them between micro-batches. Handlers are installed by the
command line only; in a notebook Ctrl-C stays a KeyboardInterrupt.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

from mudd_core import _core

_taken = False  # the command line has installed its handlers
_reason = "request"  # of a stop that no signal asks for


def request(reason: str) -> None:
    """Ask for a stop, for a reason that the run then names."""
    global _reason
    _reason = reason
    _core.request_stop()


def _forget() -> None:
    """Forget every request."""
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
    """The same until the process ends, as the command line wants it: a second signal counts to the last moment.

    says: print a line at the first request.
    """
    global _taken
    if not _taken:
        _core.install_stop_handlers(says)
        _taken = True


def taken() -> bool:
    """Whether the command line's handlers are installed."""
    return _taken


def release() -> None:
    """Remove the handlers that take_for_good installed, if any, and forget their requests."""
    global _taken
    if _taken:
        _taken = False
        _core.remove_stop_handlers()
        _forget()


@contextlib.contextmanager
def interrupt_later() -> Iterator[None]:
    """Ctrl-C inside the block asks for a stop, and becomes KeyboardInterrupt only when the block ends.

    For notebooks and programs without `handlers`: an interrupt between the update of the weights and the count of the
    step would leave a trainer that repeats a step. Does nothing beside other threads' or other people's handlers.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or _taken or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    pressed = False

    def on_interrupt(*_: object) -> None:
        nonlocal pressed
        if pressed:  # the second one does not wait
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
    """Who asked for a stop, or None. by_file: whether the run's STOP file asks for one."""
    if _core.stop_requested():
        number = _core.stop_signal()
        return signal.Signals(number).name if number else _reason
    return "STOP file" if by_file is not None and by_file() else None


def take_save_request() -> bool:
    """True once after a SIGUSR2."""
    return bool(_core.take_save_request())
