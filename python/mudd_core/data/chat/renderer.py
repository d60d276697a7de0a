"""Render conversations in a child process with limits, because a template may loop or exhaust the memory."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mudd_core.base.child import Child
from mudd_core.base.errors import UserError
from mudd_core.base.packages import install_command, needed
from mudd_core.base.types import JsonObject
from mudd_core.data.chat.child import Answer
from mudd_core.data.chat.conversations import Conversation
from mudd_core.data.chat.counted import RefusedError
from mudd_core.data.chat.templates import ChatTemplate

SCRIPT = Path(__file__).with_name("child.py")
MEMORY = 1 << 29  # bytes of address space in addition to Python's own
SECONDS = 10.0  # seconds of processor time for a conversation
SHORTEST_BOUND = 1 << 20  # characters of a rendered text that are always read
_CHARACTERS_A_TOKEN = 64
_ARGUMENT = "[data.template]"
_SAFE = (3, 1, 6)  # templates can escape the sandbox of earlier versions


@dataclass(frozen=True)
class RenderedChat:
    """The rendered text of a conversation, and the spans [first, end) of its characters that contribute to the loss.

    head: the length of the system turn. changed: the number of earlier answers that the template rewrites once later
    turns follow; they have no loss.
    """

    text: str
    spans: list[tuple[int, int]]
    head: int
    changed: int = 0


class Renderer:
    """A child process that renders by one template. Raise UserError if jinja2 is missing or the template is invalid."""

    def __init__(self, template: ChatTemplate, loss_on: str, longest: int = SHORTEST_BOUND) -> None:
        """Start the process. longest: a rendered conversation with more characters is rejected as TOO_LONG."""
        require_jinja2()
        self._template, self._seconds = template, SECONDS
        self._child = Child(SCRIPT, [str(MEMORY), str(SECONDS)], environment={"PYTHONIOENCODING": "utf-8"})
        head = {
            "template": template.source,
            "tool_use": template.tool_use,
            "variables": template.variables,
            "loss_on": loss_on,
            "longest": longest,
        }
        answer = self._ask(json.dumps(head), "")
        if "error" in answer:
            self.close()
            raise UserError(f"{_ARGUMENT} {template.name} is no Jinja template: {answer['error']}")

    def render(self, chat: Conversation, example: str) -> RenderedChat:
        """Return the rendered text and its mask. example: its index, for messages.

        Raise RefusedError for a conversation that cannot be trained on, and UserError if the template takes too long.
        """
        request = {
            "messages": chat.messages,
            "tools": chat.tools,
            "untrained": [*chat.untrained],
            "variables": chat.variables,
            "written": chat.written,
        }
        answer = self._ask(json.dumps(request), f" with {example}")
        if "kind" in answer:
            raise RefusedError(answer["kind"], answer["reason"], answer["texts"])
        spans = [(a, b) for a, b in answer["spans"]]
        return RenderedChat(answer["text"], spans, answer["head"], answer["changed"])

    def prompt(self, messages: Sequence[JsonObject], variables: JsonObject, *, asks: bool = True) -> str:
        """Return the rendered text of messages. asks: end it with the prompt for the next answer.

        Raise RefusedError for messages that the template rejects, and UserError if the template takes too long.
        """
        request = {"messages": [*messages], "tools": None, "variables": variables, "asks": asks}
        answer = self._ask(json.dumps(request), "")
        if "kind" in answer:
            raise RefusedError(answer["kind"], answer["reason"], answer["texts"])
        return answer["text"]

    def _ask(self, request: str, example: str) -> Answer:
        child = self._child
        try:
            child.input.write(request.encode() + b"\n")
            child.input.flush()
            line = child.output.readline()
        except OSError:
            line = b""
        if not line:
            raise UserError(
                f"{_ARGUMENT} {self._template.name}: {self._death()}{example}; name another template"
            )
        answer: Answer = json.loads(line)
        return answer

    def _death(self) -> str:
        code = self._child.code()
        if -code in (signal.SIGPROF, signal.SIGKILL):
            return f"the template takes longer than {self._seconds:g} s"
        return f"the process that renders templates ended with {'signal' if code < 0 else 'code'} {abs(code)}"

    def close(self) -> None:
        """End the process; a second call does nothing."""
        self._child.end()


def bound_for(seq_len: int) -> int:
    """Return the maximum number of characters of a conversation that may fit train.seq_len tokens."""
    return max(SHORTEST_BOUND, _CHARACTERS_A_TOKEN * seq_len)


def require_jinja2() -> None:
    """Raise UserError with the install command if jinja2 is missing or has an unsafe sandbox."""
    jinja2 = needed("jinja2", _ARGUMENT, "to render chat templates")
    version = tuple(int(part) for part in str(jinja2.__version__).split(".")[:3] if part.isdigit())
    if version < _SAFE:
        wanted = ".".join(map(str, _SAFE))
        raise UserError(
            f"{_ARGUMENT} expected jinja2 {wanted} or later, whose sandbox is safe, got "
            f"{jinja2.__version__}; install it: {install_command('jinja2')}"
        )
