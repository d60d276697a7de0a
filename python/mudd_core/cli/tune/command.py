"""Fine-tune a Hugging Face model or a run on conversations, or on pairs of answers.

    python3 launch.py tune --base=SmolLM2-135M --data=chat.jsonl --workdir=runs/mine
    python3 launch.py tune --base=mine --data=pairs.jsonl --loss=dpo --workdir=runs/better
    python3 launch.py tune --base=SmolLM2-135M --data=chat.jsonl --workdir=runs/mine --plan

The command prints its choices with reasons, trains, and shows held-out prompts with the answers of both models. On
Ctrl-C or SIGTERM it saves and exits with code 75; the same command resumes.
"""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Sequence

from mudd_core.base.errors import StopRequestedError, UserError
from mudd_core.base.paths import local
from mudd_core.base.surroundings import typed_program
from mudd_core.cli import argv, entry
from mudd_core.cli.names import JOB_OPTIONS, OPTIONS
from mudd_core.cli.planning import plan
from mudd_core.cli.same_run import typed
from mudd_core.cli.tune.before_after import print_answers
from mudd_core.cli.tune.fields import loss_word
from mudd_core.cli.tune.line import require_own_names
from mudd_core.cli.tune.start import Asked, Start, started
from mudd_core.config.tool_arguments import ToolArguments
from mudd_core.config.values import whole
from mudd_core.run.loop import signals
from mudd_core.run.store.run_folder import RunFolder


def main(words: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    parser = _parser()
    require_own_names(words, parser.own_options())
    options, rest = parser.read(words)
    run = RunFolder(local(options.workdir, "[tune] --workdir"))
    rest += _teacher_fields(options)
    ranks = whole("[arguments] --ranks", options.ranks or "1", 1, 1024)
    if options.loss:
        rest = [loss_word(options.loss, "[tune] --loss"), *rest]
    asked = Asked(options.base, options.data, run, options.adapter or "", rest, ranks, options.plan)
    with started(asked) as start:
        code = _planned_or_trained(options, words, asked, start)
    if asked.plan or code != 0:
        return code
    try:
        signals.take_for_good()  # with ranks, other processes had these signals during the training
        print_answers(run, start.base)
    except StopRequestedError as error:
        again = shlex.join([*typed_program(), "tune", *words])
        print(f"stopped by {error} before all answers were printed; to print them:\n  {again}", flush=True)
        return 75
    print(f"\nexport   {shlex.join([*typed_program(), 'export', f'--workdir={run}', f'--to={run}-export'])}")
    return code


def _planned_or_trained(options: Namespace, words: Sequence[str], asked: Asked, start: Start) -> int:
    """Print the choices, then print the plan or train; return the exit code."""
    print("\n".join(start.lines), flush=True)
    run = asked.run
    given = {name: getattr(options, name[2:].replace("-", "_")) for name in JOB_OPTIONS}
    job = {name: value for name, value in given.items() if value}
    if asked.plan:
        print(plan(start.config, run, job, [*typed_program(), "tune", *words], start.counted).text)
        return 0
    chosen = [f"{name}={value}" for name, value in job.items()]
    train = ["train", f"--config={run.asked_file}", f"--workdir={run}", *chosen, *start.place, *asked.fields]
    with typed(["tune", *words]):
        return entry.run(argv.parse([*train, *(["--verbose"] if options.verbose else [])]))


def _teacher_fields(options: Namespace) -> list[str]:
    """Return the fields that --teacher and --teacher-weight set."""
    given = {"loss.teacher": options.teacher, "loss.teacher_weight": options.teacher_weight}
    if options.teacher_weight and not options.teacher:
        raise UserError("[tune] --teacher-weight: expected --teacher=FILE with it, got none")
    return [f"{name}={value}" for name, value in given.items() if value]


def _parser() -> ToolArguments:
    parser = ToolArguments("tune", __doc__ or "", fields="train.epochs=2")
    parser.add_argument(
        "--base", required=True, metavar="DIR", help="Hugging Face model folder, or a run, to start from"
    )
    parser.add_argument(
        "--data", required=True, metavar="FILE", help="conversations: jsonl, Parquet or Arrow (docs/data.md)"
    )
    parser.add_argument(
        "--loss", metavar="KIND", help="dpo or orpo: learn from pairs of prompt, chosen, rejected"
    )
    parser.add_argument("--adapter", metavar="DIR", help="PEFT folder with adapters to train further")
    parser.add_argument(
        "--teacher", metavar="FILE", help="file that `teach` has written; also learn from this teacher"
    )
    parser.add_argument(
        "--teacher-weight", metavar="W", help="weight of the teacher, from 0 to 1; default 0.5"
    )
    parser.add_argument("--workdir", required=True, metavar="DIR", help="work directory of the run")
    parser.add_argument(
        "--plan", action="store_true", help="print the choices, tokens, memory and time; train nothing"
    )
    for name in JOB_OPTIONS:
        value, text, _ = OPTIONS[name]
        parser.add_argument(name, metavar=value, help=text)
    parser.add_argument("--verbose", action="store_true", help="also print the whole config")
    return parser
