"""The table of error codes: one entry for each kind of error.

A kind is an exception class, or UserError with one of the places that its message names in brackets, such as
`[data.path]`. The exit code is the start of the code: MC2.. for 2, MC65. for 65. docs/reference/error-codes.md is
written from this table.
"""

from __future__ import annotations

from mudd_core.cli.error_codes.kind import FULL_MEMORY, INTERNAL, OWN_FILE, Kind

KINDS = (
    Kind(
        "MC200",
        "UserError",
        "A command or a call has a value that cannot be used",
        "An option of a command or an argument of a Python call has a wrong type, shape or value. The message names "
        "the argument, the expected value and the actual one.",
        "Correct the argument that the message names in brackets. `launch.py COMMAND --help` and `help(FUNCTION)` list "
        "the accepted values.",
        "reference/messages.md",
    ),
    Kind(
        "MC201",
        "UserError",
        "The command line cannot be read",
        "An argument is no command, no option and no config field, or a required one is missing.",
        "Copy the command at the end of the message. Set fields as `section.field=value`, and name the config with "
        "`--config=FILE`.",
        "running/start.md",
        ("arguments",),
    ),
    Kind(
        "MC202",
        "UserError",
        "The config has a value that cannot be used",
        "A field is unknown, has a value outside its range, or contradicts another field.",
        "Correct the field that the message names. `launch.py --explain FIELD --config=FILE` prints where its value "
        "comes from, and `--help=all` lists all fields.",
        "reference/fields.md",
        (
            *("config", "load_config", "model", "train", "optim", "loss", "eval", "sample", "log", "mesh"),
            *("average", "precision", "register_family", "register_optimizer"),
        ),
    ),
    Kind(
        "MC203",
        "UserError",
        "A config or key of another program has no equivalent",
        "A command or file of another program sets a key that mudd_core lacks, or an unsupported combination of them.",
        "Leave the key out, or use the value that the message names. The page of the program lists every key.",
        "coming-from",
        (
            *("hydra", "maxtext", "muddformer_jax", "muddformer_torch", "mu_transformer", "tokenformer_jax"),
            *("tokenformer_neox", "mllog"),
        ),
    ),
    Kind(
        "MC204",
        "UserError",
        "The data cannot be used",
        "A file is missing, the pipeline cannot read its format, encoding or columns, or the tokenizer does not fit.",
        "Correct the field of `data` that the message names. `launch.py data inspect PATH` prints format, columns and "
        "lengths of the files.",
        "data.md",
        ("data", "tokenizer", "storage", "hub", "data convert", "preprocess"),
    ),
    Kind(
        "MC205",
        "NoFilesError",
        "The path has no files",
        "The path of the data does not exist, matches no file, or names a file twice.",
        "Correct the path. It is relative to the folder in which you start the command. Put a pattern such as "
        "`'data/*.jsonl'` in quotes.",
        "data.md",
    ),
    Kind(
        "MC206",
        "MissingPackageError",
        "An optional package is not installed",
        "The command needs a Python package that a training without this feature does not need.",
        "Type the command at the end of the message; it installs the package for the Python that runs mudd_core. "
        "`launch.py doctor` lists all optional packages.",
        "running/start.md",
    ),
    Kind(
        "MC207",
        "UserError",
        "The work directory cannot be used",
        "The folder has no run, has files of another program, or cannot be written.",
        "Name the folder of a run to read it, and a new or empty folder to train.",
        "running/work-directory.md",
        ("workdir", "report", "compare", "diff"),
    ),
    Kind(
        "MC208",
        "InUseError",
        "Another process uses the work directory",
        "A training holds the lock of this folder, perhaps on another machine. Two processes would overwrite each "
        "other's checkpoints.",
        "Wait for the other training, stop it, or choose another `--workdir`.",
        "running/work-directory.md",
    ),
    Kind(
        "MC209",
        "OtherConfigError",
        "The run was started with another config",
        "The work directory has a run whose config differs in a field that may not change on a resume.",
        "Type one of the commands of the message: the first trains a second run, the other one resumes with the saved "
        "values.",
        "running/stop-and-resume.md",
    ),
    Kind(
        "MC210",
        "UserError",
        "A resume is not possible with these values",
        "A field, a file or the number of processes differs from the run that is resumed.",
        "Use the saved values that the message names, or another `--workdir` for a new run.",
        "running/stop-and-resume.md",
        ("resume",),
    ),
    Kind(
        "MC211",
        "UserError",
        "Weights or a checkpoint cannot be used",
        "A file or folder of weights is missing, belongs to another model, or has names and shapes that do not fit.",
        "Name a work directory, a step folder, a safetensors file or a Hugging Face folder of the same architecture. "
        "`launch.py import` converts the weights of other programs.",
        "running/weights.md",
        (
            *("checkpoint", "start", "import", "export", "interop", "hf", "gguf", "load_run", "lora", "grow"),
            *("Model.load", "Model.save", "load_state_dict", "shards", "weights"),
        ),
    ),
    Kind(
        "MC212",
        "UserError",
        "The processes of a job cannot start",
        "The launcher, the hosts or the number of ranks do not fit the machine or the mesh.",
        "Use the number that the message names. `launch.py --plan --ranks=N --config=FILE` shows the memory of a rank, "
        "and `launch.py doctor` checks MPI.",
        "cluster.md",
        ("launch", "ranks", "dist"),
    ),
    Kind(
        "MC213",
        FULL_MEMORY,
        "There is not enough memory",
        "The process could not allocate memory, because the machine or the limit of the process is full.",
        "Use a smaller batch, sequence or model, several ranks, or a higher limit (`ulimit -v`). `--plan` shows the "
        "parts of the memory before a start.",
        "running/symptoms.md",
        ("memory",),
    ),
    Kind(
        "MC214",
        OWN_FILE,
        "Your own Python file raises an error",
        "A config file, or a file that a field names as FILE.py:NAME, ended with an exception.",
        "Correct the line that the message names.",
        "your-own.md",
    ),
    Kind(
        "MC215",
        "DataEndError",
        "The data have ended",
        "A stream of data has no further batch, because `data.epochs` limits the passes.",
        "Train fewer steps, or raise `data.epochs`.",
        "data.md",
    ),
    Kind(
        "MC216",
        "NotBuiltError",
        "The C++ core is not built",
        "The checkout has no compiled core for this Python.",
        "Type `./run setup` in the checkout.",
        "running/start.md",
    ),
    Kind(
        "MC217",
        "UserError",
        "A fine-tuning cannot start",
        "The base model, the conversations or the options of `tune` or `teach` do not fit each other.",
        "Correct the option that the message names. `launch.py tune --help` lists the options, and `--plan` checks all "
        "of them without a training.",
        "fine-tuning.md",
        ("tune", "teach"),
    ),
    Kind(
        "MC218",
        "UserError",
        "An export cannot be compared with its statement",
        "The folder has no `provenance.json`, the statement is damaged or of another version, or its run cannot be "
        "derived again on this machine.",
        "Export the run again, type the option that the message names, or install the version that it names.",
        "running/provenance.md",
        ("verify",),
    ),
    Kind(
        "MC650",
        "FormatError",
        "A file is damaged",
        "A checksum, a length or a value in a file contradicts the rest of it. The message has the file and the byte.",
        "Copy the file again from its source, or restore it from a backup. A damaged checkpoint is skipped if an older "
        "one is intact; a damaged token cache may be deleted, because the next start builds it again.",
        "running/symptoms.md",
    ),
    Kind(
        "MC700",
        INTERNAL,
        "mudd_core has a defect",
        "An exception that no user input should cause. The traceback above the message shows the place.",
        "Report the traceback with the command and the output of `launch.py doctor`. A training resumes from its "
        "newest complete checkpoint.",
        "running/symptoms.md",
    ),
    Kind(
        "MC740",
        "SaveError",
        "A required write failed",
        "The disk is full, a quota or a limit of file sizes is reached, or the folder cannot be written.",
        "Free space or raise the limit, then type the same command; the run resumes from its newest complete "
        "checkpoint. `--plan` prints the size of the checkpoints.",
        "running/symptoms.md",
    ),
    Kind(
        "MC741",
        "SourceLostError",
        "The data files became unreachable during the training",
        "A data file could not be read even after `data.retries` tries. The run is saved up to the step before.",
        "Mount the storage again, then type the same command.",
        "data.md",
    ),
    Kind(
        "MC750",
        "StopRequestedError",
        "The command was stopped on request",
        "Ctrl-C, SIGTERM or a file STOP requested a stop. The progress is saved; this is no failure.",
        "Type the same command to continue.",
        "running/stop-and-resume.md",
    ),
    Kind(
        "MC760",
        "DivergedError",
        "The training diverged",
        "Losses or gradients were not finite in too many steps in a row.",
        "Use a lower `optim.lr` or a longer `optim.warmup_steps`, then start from a checkpoint before the divergence.",
        "running/symptoms.md",
    ),
)
