"""Compare an exported folder with its provenance.json, and data and tokenizer with it if you name them.

    python3 launch.py verify exported
    python3 launch.py verify exported --data=PATH
    python3 launch.py verify exported --data=PATH --train

The statement contains hashes, and anyone can write one: check a signature with another program first. With --train, the
weights are derived again on this machine by the same version. Exit codes: 0 equal, 1 different, 2 cannot be compared.
No code in the folder is run.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import mudd_core
from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.paths import local
from mudd_core.base.show.printable import visible
from mudd_core.base.surroundings import typed_program
from mudd_core.config.tool_arguments import ToolArguments
from mudd_core.provenance.check import Findings, check_files, statement_file
from mudd_core.provenance.given import check_base, check_data, check_tokenizer, has_data_hash
from mudd_core.provenance.statement import Statement, read_statement
from mudd_core.run.store.json_files import facts_of
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.tools.sigterm import ended_by_sigterm

_DIFFERENT, _EQUAL = 1, 0
_MOST_LINES = 50


@ended_by_sigterm()
def main(words: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    parser = _parser()
    if "--json" in words:
        parser.error(
            "--json: verify prints text only; provenance.json in the export is JSON; leave --json out"
        )
    asked, rest = parser.read(words)
    if rest and not asked.train:
        parser.error(f"unexpected argument '{rest[0]}'")
    for option, value in (("--run", asked.run), ("--workdir", asked.workdir)):
        if value is not None and not asked.train:
            parser.error(f"{option}: expected --train with it, got none; leave {option} out")
    statement = read_statement(_place(asked.folder))
    found = Findings()
    check_files(statement, found)
    try:
        _check_given(statement, asked, found)
    except UserError as error:
        if not found.differs:
            raise
        found.unshown.append(f"a further comparison: {error}")
    if asked.train and not found.differs:
        _derive(statement, asked, rest, found)
        found.unshown += ["that this training gives these weights"] if found.differs else []
        found.unshown.append("that the hashes of its code, its commands and its run id are true")
    else:
        why = ", which --train skips because files differ" if asked.train else " (--train)"
        found.unshown.append(f"that this training gives these weights{why}")
    found.unshown.append("who wrote the statement, which a signature shows")
    for text in found.differs[:_MOST_LINES]:
        print(visible(f"differs: {text}"))
    if (more := len(found.differs) - _MOST_LINES) > 0:
        print(f"differs: {more:,} more")
    print(visible(sentence(statement, found)))
    return _DIFFERENT if found.differs else _EQUAL


def _parser() -> ToolArguments:
    parser = ToolArguments("verify", __doc__ or "", fields="data.eval_path=FILE")
    parser.add_argument("folder", metavar="EXPORT", help="folder of an export, or its GGUF file")
    data = "compare the data of the run: a file or folder; empty: Python's standard library"
    parser.add_argument("--data", metavar="PATH", help=data)
    parser.add_argument(
        "--tokenizer", metavar="PATH", help="compare the tokenizer of the run: a file or folder"
    )
    parser.add_argument("--base", metavar="PATH", help="compare the weights from which the run started")
    parser.add_argument(
        "--train",
        action="store_true",
        help="derive the weights again with the config of the statement, and compare them",
    )
    parser.add_argument(
        "--run",
        metavar="RUN",
        help="with --train: the first run, if you have it; used only if the derived one differs, by diff",
    )
    parser.add_argument(
        "--workdir",
        metavar="DIR",
        help="folder for the runs of --train; default a temporary one, which is deleted",
    )
    return parser


def _derive(statement: Statement, asked: argparse.Namespace, rest: Sequence[str], found: Findings) -> None:
    """Train the config of the statement in a folder, and compare the weights."""
    from mudd_core.tools.verify.derive import Derivation
    from mudd_core.tools.verify.recipe import derived_config, require_same_code

    require_same_code(statement)
    if asked.run is not None:
        _require_its_run(statement, asked.run)
    with contextlib.ExitStack() as stack:
        base = None if asked.base is None else stack.enter_context(base_run(asked.base))
        config = derived_config(statement, rest, asked.data, base, saves=asked.run is not None)
        work = asked.workdir or stack.enter_context(tempfile.TemporaryDirectory(prefix="mudd-verify-"))
        added = statement.text("export", "tokenizer")
        if added and asked.tokenizer is None:
            raise UserError(f"[verify] --train: `export` added the tokenizer {added}; add --tokenizer=PATH")
        words = [f"--tokenizer={asked.tokenizer}"] if added else []
        Derivation(statement, config, local(work, "[verify] --workdir").absolute(), words).run(found)
        if found.differs and asked.run is not None:
            _explain(asked.run, Path(work) / "run", kept=asked.workdir is not None)


def _require_its_run(statement: Statement, named: str) -> None:
    """Raise UserError unless a folder is the run that the statement names."""
    run = RunFolder(local(named, "[verify] --run"))
    if not run.is_own_run:
        raise UserError(f"[verify] --run: expected the folder of a run, got '{named}'")
    wanted, got = statement.text("run", "id"), facts_of(run).get("run_id")
    if wanted and wanted != got:
        raise UserError(
            f"[verify] --run: expected the run of the statement, whose id is {wanted}, got '{named}' with the id "
            f"{got}; leave --run out, or compare both runs with diff"
        )


def _place(named: str) -> Path:
    """Return the statement of an export; raise UserError for another path."""
    place = local(named, "[verify] EXPORT")
    if not place.exists():
        raise UserError(f"[verify] EXPORT: expected a folder of export, got '{named}', which does not exist")
    file = statement_file(place)
    if not file.is_file() and RunFolder(place).is_own_run:
        raise UserError(
            f"[verify] EXPORT: expected a folder of export, got the run {named}; export it first: "
            f"export {named} --to=FOLDER"
        )
    return file


def _check_given(statement: Statement, asked: argparse.Namespace, found: Findings) -> None:
    """Compare the data, the tokenizer and the base that the user names."""
    if asked.data is not None and (has_data_hash(statement) or not asked.train):
        check_data(statement, asked.data, found)
    else:
        found.unshown.append("the data (--data=PATH)" if asked.data is None else "the data by their own hash")
    added = statement.text("export", "tokenizer")  # by export --tokenizer, so it is not the run's
    if asked.tokenizer is not None and not added:
        check_tokenizer(statement, asked.tokenizer, found)
    if asked.base is not None:
        check_base(statement, asked.base, lambda: _weights(asked.base), found)
    elif statement.sections.get("base") is not None:
        found.unshown.append("the base weights (--base=PATH)")


def _explain(run: str, derived: Path, *, kept: bool) -> None:
    """Print what `diff` finds out about the first run and the derived one.

    kept: the derived run stays; otherwise the commands that need it are left out.
    """
    from mudd_core.tools.diff.command import main as diff

    report = io.StringIO()
    try:
        with contextlib.redirect_stdout(report):
            diff([run, str(derived)])
    except UserError as error:
        print(visible(f"note: {error}"), file=sys.stderr)
    command = f"  {shlex.join(typed_program())} "
    for line in report.getvalue().splitlines():
        if kept or not (line.startswith(command) and str(derived) in line):
            print(line)


@contextlib.contextmanager
def base_run(named: str) -> Iterator[Path]:
    """Return the folder of a run with base weights; a Hugging Face folder is imported into a temporary one."""
    place = local(named, "[verify] --base")
    if not place.exists():
        raise UserError(
            f"[verify] --base: expected a run or a folder of weights, got '{named}', which does not exist"
        )
    if place.is_file() or RunFolder.holding(place)[0].is_own_run or not (place / "config.json").is_file():
        yield place
        return
    from mudd_core.tools.import_weights.command import main as import_weights

    with tempfile.TemporaryDirectory(prefix="mudd-verify-") as work, contextlib.redirect_stdout(None):
        run = Path(work) / "base"
        import_weights([str(place), f"--workdir={run}"], is_base=True)
        yield run


def _weights(named: str) -> str:
    """Return the hash of base weights."""
    from mudd_core.run.build.base import weights_sha256
    from mudd_core.run.build.start_source import read_source

    try:
        with base_run(named) as base:
            return weights_sha256(read_source(base, warns=False).tensors)
    except FormatError as error:
        raise UserError(f"[verify] --base: {error}") from error


def sentence(statement: Statement, found: Findings) -> str:
    """Return a line about what was shown and a line about what was not."""
    version = statement.text("code", "version")
    here = mudd_core.__version__
    of = f"mudd_core {version or 'of an unknown version'}{'' if version == here else f' (this is {here})'}"
    shown, unshown = "; ".join(found.shown) or "nothing", "; ".join(found.unshown)
    return f"shown, for step {statement.step} by {of}: {shown}\nnot shown: {unshown}"
