"""The child process of trial.py: load a tokenizer.json from stdin, and encode and decode with it.

Run it as a script, without mudd_core: `<python> -I -S probe.py <memory limit> <seconds> <sys.path...>`. It exits with
code 0 if the library succeeds. Else it exits with code 1 and the reason on stdout, or a signal ends it.
"""

from __future__ import annotations

import resource
import sys

SAMPLES = (
    "",
    " ",
    "The river holds 3.14 = x_1;\n\n\tdef f(a):\r\n        return a[0] + 'b'\n",
    "na\u00efve e\u0301 \u6f22\u5b57 \u0420\u0443\u0441 \u0639\u0631\u0628 \u0e44\u0e17\u0e22 \u1112\u1161\u11ab",
    "\U0001f469\u200d\U0001f4bb \ufb01 \u00a0\u2028\u3000",
    "\x00\x01\x7f\x80\ufeff\ufffd\uffff\U0010ffff",
    "<|endoftext|></s>[CLS]<unk> \u2581\u0120a##b",
    "a" * 300 + "b" + "\u00e9" * 300 + " " * 300,
)
PROBE_CHARACTERS = 2**16  # characters of the joined vocabulary that are encoded
PROBE_IDS = 2**20


def set_limits(memory: int, seconds: int) -> None:
    """Limit address space and CPU time, and forbid core files and written files."""
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def probe(data: str) -> None:
    """Load, encode and decode as JsonTokenizer does; raise whatever the library raises."""
    import tokenizers

    library = tokenizers.Tokenizer.from_str(data)
    library.no_truncation()
    library.no_padding()
    library.encode_special_tokens = True
    ids = sorted(library.get_vocab().values())[:PROBE_IDS]
    words = [library.id_to_token(i) or "" for i in ids]
    own = "".join(words)[:PROBE_CHARACTERS]
    spaced = " ".join(words)[:PROBE_CHARACTERS]
    for text in (*SAMPLES, own, spaced):
        encoded = library.encode(text, add_special_tokens=False).ids
        library.decode(encoded, skip_special_tokens=False)
    library.encode_batch_fast(list(SAMPLES), add_special_tokens=False)
    library.decode(ids, skip_special_tokens=False)
    for i in ids[:1024]:
        library.decode([i], skip_special_tokens=False)


def main() -> int:
    """Run the trial and return its exit code."""
    set_limits(int(sys.argv[1]), int(sys.argv[2]))
    sys.path[:] = sys.argv[3:]
    try:
        probe(sys.stdin.buffer.read().decode("utf-8"))
    except BaseException as e:  # a Rust panic is a BaseException
        print(f"{e}"[:1000].encode("ascii", "backslashreplace").decode())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
