"""Print the job script with which Slurm trains by several ranks.

    python3 launch.py slurm --config=small.py --nodes=2 --time=24:00:00 > job.sbatch
    sbatch job.sbatch

Two minutes before the time limit or a preemption the ranks save, and the job is requeued and resumes. All arguments
that are not options of this command are the arguments of the training; they are checked now, with its mesh.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.regular_files import read_text
from mudd_core.base.surroundings import typed_program
from mudd_core.cli.argv import parse
from mudd_core.cli.job_arguments import require_train
from mudd_core.cli.names import JOB_OPTIONS
from mudd_core.cli.requested import request_of
from mudd_core.config import Config, mesh_of
from mudd_core.config.arguments import Arguments
from mudd_core.config.tool_arguments import ToolArguments, whole_number

_LIMIT = re.compile(r"(\d+-\d{1,2}(:\d{1,2}){0,2}|\d+(:\d{1,2}){0,2}|UNLIMITED)", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9_.,+-]+")
_FILE, _CORES = "job.sbatch", 16
_TASKS = ("--ntasks", "-n", "-N")
# Options of sbatch that this command does not have.
_OF_SBATCH = re.compile(
    r"--(mem|mem-per-cpu|qos|constraint|gres|mail-type|mail-user|array|dependency|reservation|nodelist|exclude|begin"
    r"|licenses|output|error|chdir|export|comment|nice|tmp|hold)"
)


def main(words: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    args, rest = _parser().parse_known_args(list(words))
    _refuse_options_of_sbatch(rest)
    config = _checked(rest, args.nodes * args.ranks_per_node)
    args.threads = _cores(args.threads, config)
    name = config.name if _NAME.fullmatch(config.name) else "mudd"
    print(job_script(args, rest, args.job_name or name), end="")
    return 0


def job_script(args: argparse.Namespace, typed: Sequence[str], name: str) -> str:
    """Return the script. args: the options. typed: the arguments of the training. name: the name of the job."""
    lines = {
        "job-name": name,
        "nodes": args.nodes,
        "ntasks-per-node": args.ranks_per_node,
        "exclusive": True,
        "cpus-per-task": args.threads,
        "time": args.time,
        "partition": args.partition,
        "account": args.account,
        "output": f"{name}-%j.log",
    }
    given = ((key, value) for key, value in lines.items() if value is not None)
    header = (f"#SBATCH --{key}" if value is True else f"#SBATCH --{key}={value}" for key, value in given)
    in_clone = Path("launch.py").is_file()
    values = {
        "FILE": _FILE,
        "HEADER": "\n".join(header),
        "PYTHON": args.python or _interpreter(),
        "LAUNCH": args.launcher,
        "PROGRAM": "launch.py" if in_clone else "-m mudd_core",
        "WORDS": " ".join(map(shlex.quote, typed)),
    }
    text = read_text(Path(__file__).with_name("job.sh"))
    return re.sub("@([A-Z]+)@", lambda found: str(values[found[1]]), text)


def _interpreter() -> str:
    """Return the running interpreter quoted for the shell, relative to the current folder if it is inside."""
    running = Path(sys.executable)
    inside = running.is_relative_to(Path.cwd())
    return shlex.quote(str(running.relative_to(Path.cwd()) if inside else running))


def _refuse_options_of_sbatch(words: Sequence[str]) -> None:
    """Raise UserError for an option of sbatch that this command does not write into the script."""
    arguments = Arguments(words)
    for item in arguments:
        name, value = item.option, arguments.plain_value() if item.value is None else item.value
        if name in _TASKS:
            raise UserError(f"[slurm] {name}: expected --nodes=N and --ranks-per-node=M for N x M ranks")
        if _OF_SBATCH.fullmatch(name):
            option = shlex.quote(f"{name}={value}" if value else name)
            raise UserError(
                f"[slurm] {name} is an option of sbatch, whose options replace the lines of the script; leave it out, "
                f"then type: sbatch {option} {_FILE}"
            )


def _cores(asked: int | None, config: Config) -> int:
    """Return the cores of a rank: --threads, else train.threads, which may not contradict it."""
    of_run = config.train.threads
    if asked is not None and of_run not in (0, asked):
        raise UserError(
            f"[slurm] --threads: expected the {of_run} of train.threads, which each rank would use, got {asked}; leave "
            "out --threads, or set train.threads=0"
        )
    return asked or of_run or _CORES


def _checked(words: Sequence[str], ranks: int) -> Config:
    """Return the config of a training; raise UserError if `ranks` ranks would reject its arguments."""
    asked = parse(words)
    line = shlex.join([*typed_program(), "slurm", "--config=small.py"])
    if not words:
        raise UserError(f"[slurm] expected the arguments of a training, got none; type: {line}")
    if named := [option for option in JOB_OPTIONS if option in asked.job.options]:
        raise UserError(
            f"[slurm] {named[0]}: expected --nodes=N and --ranks-per-node=N, because Slurm chooses the hosts; leave "
            f"out {' and '.join(named)}"
        )
    if asked.command != "train" or asked.informs:
        raise UserError(f"[slurm] expected the arguments of a training, got another command; type: {line}")
    with open(os.devnull, "w", encoding="utf-8") as null, contextlib.redirect_stdout(null):
        request = request_of(asked)
    require_train(request)
    config = request.required_config()
    mesh_of(config, ranks)
    return config


def _parser() -> ToolArguments:
    parser = ToolArguments("slurm", __doc__ or "", fields="train.steps=1000")
    count = whole_number(1)
    parser.add_argument("--nodes", type=count, default=1, metavar="N", help="nodes of the job; default 1")
    # The second name is sbatch's own.
    parser.add_argument(
        "--ranks-per-node",
        "--ntasks-per-node",
        type=count,
        default=1,
        metavar="N",
        help="ranks on each node; default 1",
    )
    parser.add_argument(
        "--threads",
        "--cpus-per-task",
        type=count,
        metavar="N",
        help=f"cores and threads of a rank; default train.threads, else {_CORES}",
    )
    parser.add_argument(
        "--time",
        type=_matching(_LIMIT, "a time limit of Slurm, such as 90, 24:00:00 or 2-12"),
        default="24:00:00",
        metavar="LIMIT",
        help="time limit of each start; default 24:00:00",
    )
    for option, what in (("partition", "partition"), ("account", "account"), ("job-name", "name of the job")):
        parser.add_argument(f"--{option}", type=_matching(_NAME, "a name"), metavar="NAME", help=what)
    parser.add_argument(
        "--launcher", choices=("mpirun", "srun"), default="mpirun", help="starts the ranks; default mpirun"
    )
    parser.add_argument(
        "--python",
        type=_matching(re.compile(r"[A-Za-z0-9_./+-]+"), "a path without spaces"),
        metavar="PATH",
        help="interpreter on the nodes; default the one that runs this command",
    )
    return parser


def _matching(pattern: re.Pattern[str], expected: str) -> Callable[[str], str]:
    """Return an argparse type for strings that the pattern matches, so that no value can add a line of shell."""

    def read(text: str) -> str:
        if pattern.fullmatch(text) is None:
            raise argparse.ArgumentTypeError(f"expected {expected}, got '{text}'")
        return text

    return read
