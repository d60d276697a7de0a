"""Child process of renderer.py: renders conversations by a chat template and says which characters count.

Run as a script, without mudd_core: `<python> -I -S child.py <memory limit> <seconds> <sys.path...>`. The first line of
stdin is the template, each further one a conversation; each is answered by a line of stdout, all of them JSON.
"""

from __future__ import annotations

import datetime
import json
import re
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeAlias, TypedDict

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.nodes import CallBlock
    from jinja2.parser import Parser

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"
Message: TypeAlias = "dict[str, Plain]"

TOO_LONG = "too long a text"
TOO_MUCH_MEMORY = "too much memory"
FIXED_DATE = (2024, 7, 26)  # for templates that ask for today's: a run has the same text on every day
REFUSES = "a text that the template refuses"
CHANGES = "a turn that changes the text before it"
CHANGES_EARLIER = "an earlier answer that later turns change"  # the last one has a mask
UNWRITTEN = "a tool call that the template does not write"
_PROBE = "\ue0f2"  # an answer that no data set has
_SAID = ("thinking", "reasoning_content")
_OPEN, _CLOSE = "\ue0f0\ue0f1\ue0f0", "\ue0f1\ue0f0\ue0f1"  # private characters around what a mark holds


class Answer(TypedDict, total=False):
    """A line of stdout: a rendered conversation, why it is refused, or what is wrong with the template (error)."""

    error: str
    kind: str
    reason: str
    texts: list[str]
    text: str
    spans: list[tuple[int, int]]
    head: int
    changed: int


class RefusedError(Exception):
    """A conversation that cannot be trained on. texts: two that do not fit each other."""

    def __init__(self, kind: str, reason: str, texts: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.kind, self.reason, self.texts = kind, reason, list(texts)


@dataclass(frozen=True)
class Rendered:
    """A text, and the spans [first, end) of its characters that {% generation %} marks."""

    text: str
    marks: list[tuple[int, int]]


Render: TypeAlias = Callable[[list[Message], bool], Rendered]


def without_marks(marked: str) -> Rendered:
    """The text of a rendered template whose marks are the private characters, and where they were."""
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
    return Rendered("".join(parts), marks)


def compiled(source: str) -> Template:
    """The template in Jinja's immutable sandbox, with what chat templates of Hugging Face expect there."""
    from jinja2 import nodes
    from jinja2.exceptions import TemplateError
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """The tag {% generation %}: its body between two private characters."""

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
        value: Plain,
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
    template: Template, variables: dict[str, Plain], tools: Plain = None, longest: int = 1 << 24
) -> Render:
    """The function that renders by a template; RefusedError where the template refuses a conversation.

    longest: most characters of a text.
    """

    def render(messages: list[Message], asks: bool) -> Rendered:
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
            raise RefusedError(REFUSES, f"the template refuses it: {said[:500]}") from None
        if size > longest:
            raise RefusedError(TOO_LONG, f"its text has more than {longest:,} characters")
        return without_marks("".join(parts))

    return render


@dataclass(frozen=True)
class Counted:
    """The text of a conversation, and the spans of its characters that count.

    changed: earlier answers that the template changes once later turns follow. They do not count, because the model
    would not have written the text that is there.
    """

    text: str
    spans: list[tuple[int, int]]
    changed: int = 0


def counted(
    render: Render,
    messages: list[Message],
    loss_on: str,
    marked: bool,
    untrained: Sequence[int] = (),
    eos: str = "",
) -> Counted:
    """Return the characters of a conversation that count. untrained: answers that the data exclude. eos: its text.

    marked: whether the template has generation marks. Without them a turn of the assistant is the text up to it without
    the text before it with the generation prompt. RefusedError if no mask of the last answer is certain.
    """
    answers = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    whole = render(messages, False)
    if loss_on == "all":
        if untrained:
            raise RefusedError("a weight of 0", "data.loss_on=all counts every token; take assistant or last")
        return Counted(whole.text, [(0, len(whole.text))])
    wanted = [number for number, at in enumerate(answers) if at not in untrained]
    if loss_on == "last":
        wanted = [number for number in wanted if number == len(answers) - 1]
    if marked:
        marks = [mark for mark in whole.marks if mark[0] < mark[1]]
        if len(marks) != len(answers) and (loss_on == "last" or untrained or not marks):
            reason = f"the template marks {len(marks)} parts of {len(answers)} turns of the assistant"
            raise RefusedError("marks of other turns", reason, [whole.text])
        whole_marks = len(marks) != len(answers)
        return Counted(whole.text, marks if whole_marks else [marks[number] for number in wanted])
    try:
        return _by_turns(render, messages, answers, wanted, whole.text, eos)
    except RefusedError as error:
        # A later turn of the user may change the last answer; without a loss it is not needed.
        if error.kind != CHANGES or answers[-1] + 1 == len(messages):
            raise
        messages = messages[: answers[-1] + 1]
        return _by_turns(render, messages, answers, wanted, render(messages, False).text, eos)


def _by_turns(
    render: Render, messages: list[Message], answers: list[int], wanted: list[int], whole: str, eos: str
) -> Counted:
    """Return what counts by rendering up to each answer; an earlier one that later turns change does not count."""
    spans, changed = [], 0
    for number in wanted:
        try:
            spans.append(_span_of(render, messages, answers[number], whole, eos))
        except RefusedError as error:
            if error.kind != CHANGES or number == len(answers) - 1:
                raise
            changed += 1
    if not spans and changed:
        raise RefusedError(CHANGES_EARLIER, "later turns change every answer that has a loss", [whole])
    return Counted(whole, spans, changed)


def _span_of(render: Render, messages: list[Message], at: int, whole: str, eos: str) -> tuple[int, int]:
    """The characters [first, end) of turn `at` in the whole text; RefusedError where no mask is certain.

    A generation prompt may open thoughts that the answer does not have: the answer begins where both texts part.
    """
    try:
        before = render(messages[:at], True).text
    except RefusedError as error:
        if at:
            raise
        reason = f"its first turn is the assistant's, and the template cannot say what is before it ({error.reason})"
        raise RefusedError("a first turn of the assistant", reason) from None
    after = whole if at + 1 == len(messages) else render(messages[: at + 1], False).text
    reason = f"the text changes when turn {at + 1} or a later one is added, so no mask is certain"
    if not whole.startswith(after) and eos:
        after = after.removesuffix(eos)  # Phi-3's writes it after the last turn alone
    if not whole.startswith(after):
        raise RefusedError(CHANGES, reason, [after, whole])
    if after.startswith(before):
        return len(before), len(after)
    without = render(messages[:at], False).text
    # The answer may begin as the prompt ends: another answer shows where answers begin.
    other: Message = {
        **messages[at],
        **{name: _PROBE for name in _SAID if name in messages[at]},
        "content": _PROBE,
    }
    begins = _shared(after, render([*messages[:at], other], False).text)
    first = min(_shared(before, after), begins)
    if after.startswith(without) and first > len(without):
        return first, len(after)
    # An answer may remove thoughts of earlier ones (gpt-oss). It starts after the last prompt in the text.
    prompt = before[len(without) :] if before.startswith(without) else ""
    first = after.rfind(prompt, 0, begins) + len(prompt)
    asked = messages[at - 1].get("content")
    if not prompt or first < len(prompt) or (isinstance(asked, str) and asked.strip() in after[first:begins]):
        raise RefusedError(CHANGES, reason, [before, after])
    return first, len(after)


def _shared(first: str, second: str) -> int:
    """Return the number of characters in which two texts begin alike."""
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def require_parts(messages: list[Message], text: str) -> None:
    """RefusedError where a template that takes texts drops contents in parts, or writes them as lists."""
    for number, message in enumerate(messages, 1):
        parts = message.get("content")
        if not isinstance(parts, list):
            continue
        said = [str(part["text"]).rpartition("</think>")[2] for part in parts if isinstance(part, dict)]
        as_lists = (str(parts), json.dumps(parts, ensure_ascii=False))
        if not all(one.strip() in text for one in said) or any(one in text for one in as_lists):
            reason = f"turn {number}: the template does not read content in parts; write it as one text"
            raise RefusedError("parts that the template does not read", reason, [text])


def require_calls(render: Render, messages: list[Message]) -> None:
    """RefusedError if the template drops a tool call: calls of other names show which ones it writes."""
    other: list[Message] = []
    count = 0
    for message in messages:
        calls = message.get("tool_calls")
        named: list[Plain] = []
        for call in calls if isinstance(calls, list) else []:
            function = call.get("function", call) if isinstance(call, dict) else None
            if isinstance(call, dict) and isinstance(function, dict):
                renamed: Message = {**function, "name": f"{_PROBE}{count}{_PROBE}"}
                named.append({**call, "function": renamed} if "function" in call else renamed)
                count += 1
        other.append({**message, "tool_calls": named} if named else message)
    if not count:
        return
    try:
        text = render(other, False).text
    except RefusedError:  # the template knows the names
        return
    written = sum(f"{_PROBE}{number}{_PROBE}" in text for number in range(count))
    if written < count:
        reason = f"the template writes {written} of {count} tool calls; take another data.template"
        raise RefusedError(UNWRITTEN, reason, [text.replace(_PROBE, "")])


def head_of(render: Render, messages: list[Message], text: str) -> int:
    """Characters of the system turn at the beginning of a text; -1 where it has no place of its own."""
    if messages[0]["role"] != "system":
        return 0
    try:
        head = render(messages[:1], False).text
    except RefusedError:
        return -1
    return len(head) if text.startswith(head) else -1


def _answer(
    render: Render, turns: list[Message], loss_on: str, marked: bool, untrained: Sequence[int], eos: str
) -> Answer:
    try:
        found = counted(render, turns, loss_on, marked, untrained, eos)
        require_parts(turns, found.text)
        require_calls(render, turns)
        head = head_of(render, turns, found.text)
        return {"text": found.text, "spans": found.spans, "head": head, "changed": found.changed}
    except RefusedError as error:
        return {"kind": error.kind, "reason": error.reason, "texts": error.texts}
    except MemoryError:
        return {"kind": TOO_MUCH_MEMORY, "reason": "the template needs too much memory for it", "texts": []}


def has_marks(source: str) -> bool:
    """Whether a template has generation marks."""
    return re.search(r"{%-?\s*generation\s*-?%}", source) is not None


def _say(answer: Answer) -> None:
    print(json.dumps(answer), flush=True)


def main() -> int:
    """Answer until stdin ends. A conversation that takes too long ends the process by SIGPROF."""
    memory, seconds = int(sys.argv[1]), float(sys.argv[2])
    sys.path[:] = sys.argv[3:]
    head = json.loads(sys.stdin.readline())
    sources = [head["template"], head["tool_use"] or head["template"]]  # without tools, and with them
    compiled("")  # loads what it needs, before the limits
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
        rest = (
            head["loss_on"],
            has_marks(sources[which]),
            request["untrained"],
            f"{variables.get('eos_token', '')}",
        )
        answer = _answer(render, request["messages"], *rest)
        if answer.get("kind") in (REFUSES, UNWRITTEN) and request["written"]:
            again = _answer(render, request["written"], *rest)
            answer = answer if "kind" in again else again
        signal.setitimer(signal.ITIMER_PROF, 0)
        _say(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
