"""The child process of renderer.py: render conversations by a chat template and compute their loss masks.

Run it as a script, without mudd_core: `<python> -I -S child.py <memory limit> <seconds> <sys.path...>`. The first line
of stdin is the template, and each further line a conversation. A line of stdout answers each; all lines are JSON.
"""

from __future__ import annotations

import datetime
import json
import re
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypedDict

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.nodes import CallBlock
    from jinja2.parser import Parser

if TYPE_CHECKING or __name__ != "__main__":
    from mudd_core.data.chat import counted as masks
else:  # this script runs without mudd_core
    sys.path.insert(0, str(Path(__file__).parent))
    import counted as masks

    del sys.path[0]

# The date for templates that print the current date: the rendered text must not change from day to day.
FIXED_DATE = (2024, 7, 26)
_OPEN, _CLOSE = "\ue0f0\ue0f1\ue0f0", "\ue0f1\ue0f0\ue0f1"  # private-use characters around the body of a mark


class Answer(TypedDict, total=False):
    """An output line: a rendered conversation, the reason for its rejection, or an error of the template."""

    error: str
    kind: str
    reason: str
    texts: list[str]
    text: str
    spans: list[tuple[int, int]]
    head: int
    changed: int


def without_marks(marked: str) -> masks.Rendered:
    """Return the rendered text without the private-use characters of the marks, and the spans between them."""
    parts, marks, size, first = [], [], 0, -1
    rest = marked
    while rest:
        places = [(rest.find(mark), mark) for mark in (_OPEN, _CLOSE)]
        at, mark = min((place for place in places if place[0] >= 0), default=(len(rest), ""))
        parts.append(rest[:at])
        size += at
        if mark == _OPEN:
            first = size
        elif mark == _CLOSE and first >= 0:
            marks.append((first, size))
            first = -1
        rest = rest[at + len(mark) :]
    return masks.Rendered("".join(parts), marks)


def compiled(source: str) -> Template:
    """Return the template compiled in Jinja's immutable sandbox, with the functions of Hugging Face templates."""
    from jinja2 import nodes
    from jinja2.exceptions import TemplateError
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """The tag {% generation %}, which puts its body between two private-use characters."""

        def parse(self, parser: Parser) -> CallBlock:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            block = nodes.CallBlock(self.call_method("_marked"), [], [], body)
            block.set_lineno(line)
            return block

        def _marked(self, caller: Callable[[], str]) -> str:
            return f"{_OPEN}{caller()}{_CLOSE}"

    def refuse(message: str) -> NoReturn:
        raise TemplateError(message)

    def as_json(
        value: masks.Plain,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    Generation.tags = {"generation"}
    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    sandbox.filters["tojson"] = as_json
    sandbox.globals["raise_exception"] = refuse
    sandbox.globals["strftime_now"] = lambda form: datetime.date(*FIXED_DATE).strftime(form)
    return sandbox.from_string(source)


def renderer(
    template: Template, variables: dict[str, masks.Plain], tools: masks.Plain = None, longest: int = 1 << 24
) -> masks.Render:
    """Return a function that renders by a template; it raises RefusedError if the template rejects a conversation.

    longest: the maximum number of characters in a rendered conversation.
    """

    def render(messages: list[masks.Message], asks: bool) -> masks.Rendered:
        parts, size = [], 0
        try:
            for part in template.generate(
                messages=messages, tools=tools, documents=None, add_generation_prompt=asks, **variables
            ):
                size += len(part)
                if size > longest:
                    break
                parts.append(part)
        except MemoryError:
            raise
        except Exception as error:
            said = f"{error}" or type(error).__name__
            raise masks.RefusedError(masks.REFUSES, f"the template rejects it: {said[:500]}") from None
        if size > longest:
            raise masks.RefusedError(masks.TOO_LONG, f"its text has more than {longest:,} characters")
        return without_marks("".join(parts))

    return render


def _answer(
    render: masks.Render,
    turns: list[masks.Message],
    loss_on: str,
    marked: bool,
    untrained: Sequence[int],
    eos: str,
) -> Answer:
    try:
        found = masks.counted(render, turns, loss_on, marked, untrained, eos)
        masks.require_parts(turns, found.text)
        masks.require_calls(render, turns)
        head = masks.head_of(render, turns, found.text)
        return {"text": found.text, "spans": found.spans, "head": head, "changed": found.changed}
    except masks.RefusedError as error:
        return {"kind": error.kind, "reason": error.reason, "texts": error.texts}
    except MemoryError:
        return _no_memory()


def _no_memory() -> Answer:
    return {"kind": masks.TOO_MUCH_MEMORY, "reason": "the template needs too much memory for it", "texts": []}


def _prompt(render: masks.Render, turns: list[masks.Message], asks: bool) -> Answer:
    """Return the rendered text of turns. asks: with the prompt for the next answer at the end."""
    try:
        return {"text": render(turns, asks).text}
    except masks.RefusedError as error:
        return {"kind": error.kind, "reason": error.reason, "texts": error.texts}
    except MemoryError:
        return _no_memory()


def has_marks(source: str) -> bool:
    """Return whether a template has generation marks."""
    return re.search(r"{%-?\s*generation\s*-?%}", source) is not None


def _say(answer: Answer) -> None:
    print(json.dumps(answer), flush=True)


def main() -> int:
    """Answer lines until stdin ends. SIGPROF ends the process if a conversation takes too long."""
    memory, seconds = int(sys.argv[1]), float(sys.argv[2])
    sys.path[:] = sys.argv[3:]
    head = json.loads(sys.stdin.readline())
    sources = [head["template"], head["tool_use"] or head["template"]]  # without tools, and with tools
    compiled("")  # load all modules before the limits apply
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        templates = [compiled(source) for source in sources]
    except Exception as error:
        _say({"error": f"{error}"[:500] or type(error).__name__})
        return 1
    _say({})
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        which = int(bool(request["tools"]))
        variables = {**head["variables"], **request["variables"]}
        render = renderer(templates[which], variables, request["tools"], head["longest"])
        if "asks" in request:
            answer = _prompt(render, request["messages"], request["asks"])
        else:
            eos = f"{variables.get('eos_token', '')}"
            rest = (head["loss_on"], has_marks(sources[which]), request["untrained"], eos)
            answer = _answer(render, request["messages"], *rest)
            if answer.get("kind") in (masks.REFUSES, masks.UNWRITTEN) and request["written"]:
                again = _answer(render, request["written"], *rest)
                answer = answer if "kind" in again else again
        signal.setitimer(signal.ITIMER_PROF, 0)
        _say(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
