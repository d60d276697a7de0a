"""Fuzz the Python readers: driver.py [--seconds S] [--seed K] [--target NAME] [--failures DIR] [FILE...]

Each target runs in a separate process: first its corpus, then mutated inputs for S seconds. Inputs that reach new
lines join the pool. With FILEs, only these are run. MUDD_FUZZ_MODULES may name a folder with `_core` and `_h5`, which
replace the installed modules; MUDD_FUZZ_PRELOAD names their sanitizer libraries. A seed always creates the same inputs.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib.util
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parents[2] / "python"
CORPUS = HERE.parent / "corpus"
NAMES = (
    "manifest",
    "json",
    "tokenizer",
    "tokenizer_folder",
    "sentencepiece",
    "cache",
    "cache_fields",
    "settings",
    "metrics",
    "record",
    "provenance",
    "batch",
    "weights",
    "jsonl",
    "tfrecord",
    "indexed",
    "npy",
    "arrow",
    "parquet",
    "arrayrecord",
    "yaml",
    "teacher",
    "teacher_fields",
    "gguf_tokenizer",
    "gguf_sentencepiece",
    "adapter",
)
# Targets that build the graph of a model, which the fuzzed modules lack: they run with the installed modules, without
# sanitizers. The target `weights` reads their files with sanitizers.
WITH_GRAPH = ("adapter",)
# Prints the tables that the package reads at import. The fuzzed modules lack them, because they compile no op.
TABLES = """
import json, mudd_core._core as core
def plain(one):
    if isinstance(one, (list, tuple)):
        return [plain(item) for item in one]
    if one is None or isinstance(one, (bool, int, float, str)):
        return one
    return {name: plain(getattr(one, name)) for name in dir(one) if not name.startswith("_")}
names = ("op_specs", "optimizer_specs", "roles", "schedules", "phases_of_schedules", "warmups")
print(json.dumps([[name, plain(getattr(core, name)())] for name in names]))
"""
BASES = ("ParamStore",)  # classes of _core that a class of the package derives from
RUN_SECONDS = 10
MEMORY_SLACK = (
    64 * 2**10
)  # KiB that a run may add to the peak of the process, in addition to 4 times its input


def take_modules(folder: str) -> None:
    """Replace the package's extension modules by those of a folder."""
    import mudd_core

    for name in ("_core", "_h5"):
        file = next(Path(folder).glob(f"{name}.*.so"))
        spec = importlib.util.spec_from_file_location(f"mudd_core.{name}", file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        setattr(mudd_core, name, module)
    for table, rows in core_tables():
        setattr(sys.modules["mudd_core._core"], table, lambda rows=rows: rows)
    for base in BASES:
        setattr(sys.modules["mudd_core._core"], base, type(base, (), {}))


def core_tables() -> list[tuple[str, list[SimpleNamespace | str]]]:
    """Return the tables of the installed `_core`, read in another process: two modules cannot bind the same types."""
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    printed = subprocess.run([sys.executable, "-c", TABLES], env=plain, capture_output=True, text=True)
    if printed.returncode != 0:
        sys.exit(f"{printed.stderr}fuzz: the installed package does not import; type ./run setup first")
    tables: list[tuple[str, list[SimpleNamespace | str]]] = json.loads(
        printed.stdout, object_hook=lambda fields: SimpleNamespace(**fields)
    )
    return tables


class Coverage:
    """Edge coverage: the pairs of lines of mudd_core that ran one after the other."""

    def __init__(self) -> None:
        self.seen: set[tuple[int, int, int]] = set()
        self.fresh = False
        self._package = str(PACKAGE / "mudd_core")

    def trace(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        """Record a line; a callback for sys.settrace."""
        if not frame.f_code.co_filename.startswith(self._package):
            return None
        previous, code = 0, hash(frame.f_code)

        def line(frame: FrameType, _event: str, _arg: Any) -> Any:
            nonlocal previous
            edge = (code, previous, frame.f_lineno)
            previous = frame.f_lineno
            if edge not in self.seen:
                self.seen.add(edge)
                self.fresh = True
            return line

        return line


class Session:
    """The fuzzing state of one target in this process."""

    def __init__(self, name: str, seed: int, folder: Path) -> None:
        from readers import TARGETS

        self.name, self.seed, self.folder = name, seed, folder
        self.target = TARGETS[name]
        self.coverage = Coverage()
        self.runs = self.accepted = 0
        self._watched = 0.0

    def run(self, data: bytes) -> bool:
        """Run one input; return True if it reached new lines. A broken rule raises an exception."""
        self.runs += 1
        (self.folder / "running").write_bytes(data)  # the parent reads this file if this process dies
        now = time.monotonic()
        if now - self._watched > 1:
            faulthandler.dump_traceback_later(RUN_SECONDS + 1, exit=True)
            self._watched = now
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.coverage.fresh = False
        sys.settrace(self.coverage.trace)
        try:
            self.target.run(data, self.folder)
            self.accepted += 1
        except self.target.refusals:
            pass
        finally:
            sys.settrace(None)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        if self.runs > 50 and grown > MEMORY_SLACK + 4 * len(data) // 1024:
            raise AssertionError(f"a run took {grown} KiB of memory")
        return self.coverage.fresh

    def fuzz(self, seconds: float) -> None:
        """Run the corpus, then mutations of it."""
        pool = [file.read_bytes() for file in sorted((CORPUS / self.name).iterdir())]
        for data in pool:
            self.run(data)
        draw = random.Random(self.seed)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            data = self.target.change(draw.choice(pool), draw.choice(pool), draw)
            if self.target.repair is not None and draw.randrange(4):
                data = self.target.repair(data)
            if self.run(data):
                pool.append(data)
        print(
            f"fuzz {self.name}: clean; {self.runs} runs in {seconds:.1f} s ({self.accepted} accepted), "
            f"{len(self.coverage.seen)} edges, {len(pool)} inputs in the pool, seed {self.seed}",
            flush=True,
        )


def run_here(name: str, seed: int, seconds: float, folder: Path, files: list[str]) -> int:
    """Fuzz one target in this process."""
    sys.path.insert(0, str(PACKAGE))
    modules = os.environ.get("MUDD_FUZZ_MODULES")
    if modules and name not in WITH_GRAPH:
        take_modules(modules)
    session = Session(name, seed, folder)
    try:
        for file in files:
            session.run(Path(file).read_bytes())
        if not files:
            session.fuzz(seconds)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def run_apart(name: str, args: argparse.Namespace) -> bool:
    """Fuzz one target in a child process. If the child dies, report a failure with its last input."""
    base = "/dev/shm" if os.path.isdir("/dev/shm") else None
    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=base))
    words = [sys.executable, __file__, "--inside", str(folder), "--target", name, "--seed", str(args.seed)]
    preload = "" if name in WITH_GRAPH else os.environ.get("MUDD_FUZZ_PRELOAD", "")
    env = {**os.environ, "LD_PRELOAD": preload}
    words += ["--seconds", str(args.seconds)]
    status = subprocess.run([*words, *args.files], env=env).returncode
    if status != 0:
        (folder / "running").touch()
        kept = Path(args.failures) / f"{name}-{args.seed}"
        shutil.copyfile(folder / "running", kept)
        print(
            f"fuzz {name}: FAILED (code {status}) with seed {args.seed}; the input is {kept}", file=sys.stderr
        )
    shutil.rmtree(folder)
    return status == 0


def main() -> int:
    """Fuzz the requested targets; return 0 if every target is clean."""
    sys.path.insert(0, str(HERE))
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--seconds", type=float, default=5.0, help="of each target")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--target", choices=NAMES, help="only this one")
    p.add_argument("--failures", default=".", help="folder for inputs that break a rule")
    p.add_argument("--inside", help=argparse.SUPPRESS)
    p.add_argument("files", nargs="*")
    args = p.parse_args()
    if args.inside:
        return run_here(args.target, args.seed, args.seconds, Path(args.inside), args.files)
    names = [args.target] if args.target else NAMES
    clean = [run_apart(name, args) for name in names]  # all of them run
    return 0 if all(clean) else 1


if __name__ == "__main__":
    sys.exit(main())
