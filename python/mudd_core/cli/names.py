"""The names on the command line: commands, tools, aliases and options, each with its line of help."""

from __future__ import annotations

COMMANDS = {
    "train": "train, or resume the run in the work directory (the default)",
    "validate": "print loss and bits per byte on held-out text; also: evaluate",
    "sample": "write text with the newest checkpoint",
    "chat": "talk to a run, or to a model in a Hugging Face folder",
    "data": "build the token cache; also: data show, data convert, data inspect",
    "report": "print a run's config, losses, checkpoints; --html: as a page",
}
# Tools, which are not about one run: the module with main(words) -> exit code, and a description.
TOOLS: dict[str, tuple[str, str]] = {
    "import": (
        "mudd_core.tools.import_weights.command",
        "create a run from Hugging Face or another program's weights",
    ),
    "tune": (
        "mudd_core.cli.tune.command",
        "fine-tune a Hugging Face model on conversations; also: teach",
    ),
    "teach": (
        "mudd_core.tools.teach.command",
        "write a teacher's likeliest tokens, from which tune and train learn",
    ),
    "evaluate": (
        "mudd_core.tools.evaluate.command",
        "evaluate a run or folder on tasks of lm-evaluation-harness",
    ),
    "export": (
        "mudd_core.tools.export_weights.command",
        "write a run's weights as a Hugging Face folder; also: verify, average",
    ),
    "verify": (
        "mudd_core.tools.verify.command",
        "compare an exported folder with its provenance.json; derive it again",
    ),
    "average": ("mudd_core.tools.average", "average a run's last checkpoints, as a new run folder"),
    "mup": (
        "mudd_core.tools.mup_checks.command",
        "check a parametrisation over widths; find the learning rate that transfers",
    ),
    "preprocess": (
        "mudd_core.programs.jax_lm.preprocess.command",
        "write training sequences of documents to Parquet files",
    ),
    "data convert": ("mudd_core.tools.convert.command", "convert files of one format to another"),
    "data inspect": ("mudd_core.tools.convert.inspect", "print format, records and lengths of files"),
    "data show": ("mudd_core.tools.data_show", "print the sequences that a step trains on, as text"),
    "grow": ("mudd_core.tools.grow_command", "grow a trained TokenFormer to more slots"),
    "weights": (
        "mudd_core.tools.mix_weights",
        "measure the mixing weights of a MUDDFormer; write HDF5 and SVG",
    ),
    "bakeoff": (
        "mudd_core.tools.bakeoff.command",
        "train several families on the same text, compare them; also: sweep, race",
    ),
    "sweep": (
        "mudd_core.cli.sweep.command",
        "train a run for each combination of values of config fields",
    ),
    "race": (
        "mudd_core.cli.race.command",
        "compare recipes at equal minutes, each trained with its own whole schedule",
    ),
    "configs": (
        "mudd_core.tools.configs.command",
        "list the configs: parameters, tokens, minutes on this machine",
    ),
    "compare": (
        "mudd_core.tools.compare.command",
        "compare runs: config, losses, curves, first step that differs; also: diff",
    ),
    "diff": (
        "mudd_core.tools.diff.command",
        "find why two runs differ: settings, first step, first node",
    ),
    "doctor": (
        "mudd_core.tools.doctor.command",
        "check this machine; each problem is printed with its remedy",
    ),
    "profile": (
        "mudd_core.tools.profile_command",
        "measure where the time of a step goes; also: commbench, scale, slurm",
    ),
    "commbench": ("mudd_core.tools.commbench", "measure latency and bandwidth between the ranks of a job"),
    "scale": ("mudd_core.tools.scale.command", "predict step, communication and memory on many machines"),
    "slurm": ("mudd_core.cli.slurm.command", "print the job script of a training for Slurm"),
    "completion": ("mudd_core.cli.completion.command", "print a script of Tab completion for bash or zsh"),
}
# Groups of the commands in the main help and in messages; each command and tool is in one of them.
GROUPS = {
    "train": (
        *("train", "tune", "teach", "data", "data show", "data convert", "data inspect"),
        *("preprocess", "bakeoff", "sweep", "race", "mup", "grow"),
    ),
    "use a model": ("sample", "chat", "validate", "evaluate", "import", "export", "verify", "average"),
    "look inside": ("configs", "report", "compare", "diff", "weights"),
    "machines": ("doctor", "profile", "commbench", "scale", "slurm", "completion"),
}
ALIASES = {"validation": "validate", "valid": "validate", "eval": "validate", "generate": "sample"}
# Option: value, help, the commands that have it (empty: all commands).
OPTIONS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "--config": ("FILE", "config: a file, or a name looked up in configs/ (small.py, gpt2/tiny.py)", ()),
    "--workdir": ("DIR", "folder of the run; default: runs/<config name>", ()),
    "--mode": ("NAME", "the command, as an option: --mode=train", ()),
    "--plan": ("", "print parameters, FLOPs, memory and time; train nothing", ("train",)),
    "--node-memory": (
        "GIB",
        "with --plan: memory of each machine in GiB; default the free memory of this one",
        ("train",),
    ),
    "--ranks": (
        "N",
        "use N processes, started by mpirun; docs/parallel.md",
        ("train", "validate", "sample"),
    ),
    "--hosts": (
        "A,B",
        "hosts that run the ranks; default this one",
        ("train", "validate", "sample"),
    ),
    "--max-restarts": (
        "K",
        "restart the job at most K times after a rank or host is lost; default 0",
        ("train",),
    ),
    "--devices": (
        "N",
        "multiply the per_device_* batches of MaxText and clm commands by N; default 1",
        ("train",),
    ),
    "--verbose": ("", "also print the whole config, which log.txt always contains", ("train",)),
    "--params": ("", "print every parameter with its role, decay and rate; train nothing", ("train",)),
    "--explain": ("FIELD", "print where the value of a config field comes from; train nothing", ("train",)),
    "--prompt": ("TEXT", "start of the text, - for standard input; default a new document", ("sample",)),
    "--prompt-file": ("FILE", "read the prompt from a file", ("sample",)),
    "--prompt-lines": ("FILE", "file with one prompt per line, - for standard input", ("sample",)),
    "--interactive": ("", "read prompts from the terminal, until an empty line or Ctrl-D", ("sample",)),
    "--num-samples": ("N", "samples for each prompt, each with the next seed; default 1", ("sample",)),
    "--stop": ("TEXT", "end a sample before this string, which is not printed; may be repeated", ("sample",)),
    "--system": ("TEXT", "system message of the conversation", ("chat",)),
    "--no-think": ("", "set enable_thinking=false in the chat template", ("chat",)),
    "--template": ("NAME", "chat template of a model that has none: chatml or a Jinja file", ("chat",)),
    "--tokenizer": ("PATH", "tokenizer for a run that has none", ("sample", "chat", "report")),
    "--trust-code": (
        "",
        "run the Python files of a run from another machine; read them first",
        (),
    ),
    "--html": ("[FILE]", "write a page of the run; default report.html in its folder", ("report",)),
    "--spikes": (
        "[STEP]",
        "list steps with a far too high loss; show sequences of the worst, or of STEP",
        ("report",),
    ),
    "--json": ("", "print JSON instead; with --plan, report (docs/file-formats.md)", ("train", "report")),
    "--split": ("NAME", "valid (the default) or test, a second held-out part", ("validate",)),
    "--step": (
        "N",
        "checkpoint of step N instead of the newest; best: the lowest validation loss",
        ("validate", "sample", "chat"),
    ),
    "--average": (
        "",
        "the averaged weights of train.average instead of the last ones",
        ("validate", "sample", "chat"),
    ),
    "--help": (
        "",
        "print this help; COMMAND --help: that command; --help=all: all config fields",
        (),
    ),
    "--version": ("", "print the version", ()),
    "--explain-error": (
        "[CODE]",
        "explain the code of an error, such as MC204; without a code: list all codes",
        (),
    ),
}
# Options of the command tune for the options and fields that other commands use.
OF_TUNE = {
    "--config": "--base",
    "start.load_parameters_path": "--base",
    "data.path": "--data",
    "data.dataset": "--data",
}
# The environment variable with the file for the exit code of rank 0, or of the rank that ends the job.
CODE_FILE = "MUDD_JOB_CODE"
# Environment variable: the mpirun command that started the ranks, for log.txt.
MPIRUN = "MUDD_MPIRUN"
# The environment variable with the user's command line, if another command starts the training.
TYPED = "MUDD_TYPED"
JOB_OPTIONS = ("--ranks", "--hosts", "--max-restarts")  # options for the process that starts the ranks
# Tools that divide their work among ranks, like commands with --ranks; and tools that have their own --ranks.
TOOLS_ON_RANKS = ("export", "bakeoff")
OWN_RANKS = ("commbench", "slurm", "sweep", "tune")
# Commands that read a run with its saved config. Their arguments may set only fields that may change on resume.
READING = ("validate", "sample", "chat", "report")
INTERACTIVE = "--interactive"
PROMPTS = ("--prompt", "--prompt-file", "--prompt-lines", INTERACTIVE)  # options with the prompts of sample
# All names that are not fields, used in suggestions.
KNOWN_WORDS = [*COMMANDS, *ALIASES, *TOOLS, *OPTIONS]


def is_optional(option: str) -> bool:
    """Return True if the value of an option is optional."""
    return OPTIONS[option][0].startswith("[")
