"""The commands of the command line, one function each; each returns its exit code."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from mudd_core.base.errors import UserError
from mudd_core.base.show.json_text import json_text
from mudd_core.base.surroundings import typed_program
from mudd_core.cli.ending import silent, write_now
from mudd_core.cli.names import KNOWN_WORDS
from mudd_core.cli.reading import saved_run, split_of
from mudd_core.cli.request import Request
from mudd_core.cli.sampling import OPTIONS as TEXT_OPTIONS
from mudd_core.cli.sampling import Asked, write_samples
from mudd_core.cli.training import say_notes, train
from mudd_core.config import Config
from mudd_core.config.origins import explained, origins_of_words
from mudd_core.programs.program import program_named
from mudd_core.run.build.recipe import recipe_note
from mudd_core.run.ranks.hang_watch import reader_watch
from mudd_core.run.ranks.rank_checks import hold_machine
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.store.run_as_text import require_text
from mudd_core.run.store.run_folder import RunFolder

if TYPE_CHECKING:
    from mudd_core.data.pipelines import Prepared
    from mudd_core.data.tokenizers.tokenizer import Tokenizer
    from mudd_core.engine.model import Model


def run(request: Request, ranks: Ranks | None = None) -> int:
    """Run the command; `train --plan`, `train --params` and `train --explain` only print.

    ranks: all of them must make this call.
    """
    ranks = ranks or Ranks()
    if request.resolved is not None and request.resolved.answer:
        print(request.resolved.answer)
        return 0
    if request.command == "train" and "--explain" in request.options:
        print(explain(request))
        return 0
    if ranks.first and (request.command != "train" or request.options.keys() & {"--plan", "--params"}):
        say_notes(request)
    if request.command == "train" and "--json" in request.options and "--plan" not in request.options:
        raise UserError("[arguments] --json: expected --plan with it, got none; add --plan")
    if "--node-memory" in request.options and "--plan" not in request.options:
        raise UserError("[arguments] --node-memory: expected --plan with it, got none; add --plan")
    if request.command == "train" and "--plan" in request.options:
        from mudd_core.cli.planning import print_plan

        print_plan(request)
        return 0
    if request.command == "train" and "--params" in request.options:
        from mudd_core.run.build.parameter_table import parameter_table

        print(parameter_table(request.required_config()))
        return 0
    if request.command in ("data", "report"):
        return data(request) if request.command == "data" else report(request)
    if request.command == "chat":
        from mudd_core.cli.chat.command import chat

        return chat(request)
    return {"train": train, "validate": validate, "sample": sample}[request.command](request, ranks)


def explain(request: Request) -> str:
    """Return the value and origin of the field that --explain names."""
    config, name = request.required_config(), request.options["--explain"]
    if request.resolved is not None:
        from mudd_core.programs.resolved import explained_key

        return explained_key(request.resolved, name)
    origins = origins_of_words(config, request.options["--config"], request.words, KNOWN_WORDS)
    return explained(config, name, origins)


def _asked(request: Request, ranks: Ranks) -> tuple[Config, RunFolder, int | None]:
    """Return config, folder and --step of the run that a command reads; every rank calls it."""
    from mudd_core.run.store.best_step import step_asked

    config, folder = ranks.in_turn(lambda: saved_run(request))
    if ranks.world > 1:
        ranks.together(lambda: config.mesh.require_readers(ranks.world))
        hold_machine(ranks, config)
    return config, folder, ranks.together(lambda: step_asked(request.options.get("--step"), folder))


def sample(request: Request, ranks: Ranks) -> int:
    """Generate text after each prompt and print it token by token; return 75 if a stop was requested.

    Rank 0 generates alone, or with all ranks if they share the weights. The text of the run is read only for a program
    that continues its held-out documents.
    """
    from mudd_core.run.build.saved_model import load_run, model_for_prompts

    asked = Asked.by_first(request, ranks)
    config, folder, wanted = _asked(request, ranks)
    average = "--average" in request.options
    program = program_named(config.log.style)
    typed = request.options.keys() & set(TEXT_OPTIONS)
    text: Prepared | None = None
    if program is not None and program.continues_text and not typed:
        text, model, step = load_run(config, folder, wanted, ranks, average=average)
    else:
        model, step = model_for_prompts(config, folder, wanted, ranks, average=average)
    tokenizer = ranks.together(lambda: _tokenizer(request, config, folder, model))
    together = config.mesh.runs_together(ranks.world)
    if not ranks.first and not together:
        return int(ranks.from_first(lambda: 0))  # the exit code of rank 0

    def write() -> int:
        if program is not None and text is not None:
            program.write_sample(config, text, model, tokenizer, write_now if ranks.first else silent)
            return 0
        own = ranks if together else Ranks()
        watch = reader_watch(ranks, config, model.n_parameters)

        def on_token() -> None:
            watch.phase("evaluate", step)

        return write_samples(asked, request, config, model, tokenizer, own, on_token, watch.over)

    return write() if together or ranks.world == 1 else int(ranks.from_first(write))


def _tokenizer(request: Request, config: Config, folder: RunFolder, model: Model) -> Tokenizer:
    """Return the tokenizer of --tokenizer, else of the run; raise UserError if there is none."""
    from mudd_core.run.build.run_tokenizer import asked_tokenizer, has_text, own_tokenizer

    if "--tokenizer" in request.options:
        return asked_tokenizer(request.options["--tokenizer"], config, model.config.vocab_size)
    if (found := own_tokenizer(config, folder)) is not None:
        return found
    way_out = "type --tokenizer=PATH, with a folder, a tokenizer.json, a *.model of sentencepiece, or bytes"
    if has_text(config):
        line = shlex.join([*typed_program(), "data", f"--workdir={request.typed_workdir}"])
        raise UserError(
            f"[sample] --tokenizer: expected the tokenizer of {folder} in its folder or its token cache, got none; "
            f"{way_out}; or build the token cache again from its text:\n  {line}"
        )
    raise UserError(
        "[sample] --tokenizer: expected the tokenizer of the ids that this run was trained on, got none; "
        f"{way_out}"
    )


def data(request: Request) -> int:
    """Build the token cache if it is missing, and describe it."""
    from mudd_core.data.pipelines import prepare

    config = saved_run(request)[0] if request.config is None else request.config
    require_text(config, request.folder if "--workdir" in request.options else None)
    if note := recipe_note(config):
        print(note)
    for line in prepare(config).describe():
        print(line)
    return 0


def report(request: Request) -> int:
    """Print a report of a work directory."""
    from mudd_core.cli.report import print_report, write_page

    config, folder = saved_run(request)
    if "--spikes" in request.options:
        from mudd_core.cli.spikes import print_spikes

        if "--html" in request.options:
            raise UserError("[arguments] --html: expected no --spikes with it; leave one of them out")
        print_spikes(config, folder, request.options["--spikes"], as_json="--json" in request.options)
    elif "--json" in request.options:
        from mudd_core.cli.json_values import run_values

        print(json_text("report", run_values(config, folder)))
    elif "--html" in request.options:
        write_page(config, folder, request.options["--html"])
    else:
        print_report(config, folder, request.options.get("--tokenizer"))
    return 0


def validate(request: Request, ranks: Ranks) -> int:
    """Print loss and bits per byte of a checkpoint on validation or test data; return 75 if stopped."""
    from mudd_core.cli.evaluation import STOPPED, evaluate_checkpoint, evaluate_named, evaluate_split
    from mudd_core.run.build.saved_model import load_run

    if request.config is not None:
        return evaluate_named(request, request.config)
    split = split_of(request)
    config, folder, wanted = _asked(request, ranks)
    text, model, step = load_run(config, folder, wanted, ranks, average="--average" in request.options)
    with reader_watch(ranks, config, model.n_parameters).over():
        if request.resolved is not None and request.resolved.tags and split == "valid":
            result = evaluate_checkpoint(request, config, text, model, step, ranks)
        else:
            result = evaluate_split(config, text, model, step, split, ranks)
    if result is None:
        if ranks.first:
            print(STOPPED)
        return 75
    if ranks.first:
        print(
            f"step {step}: {'test' if split == 'test' else 'validation'} loss {result.val_loss:.6f}, "
            f"{result.precise_text}, {result.targets:,} targets, {result.seconds:.1f} s"
        )
        for line in result.source_lines():
            print(line)
        if (program := program_named(config.log.style)) is not None:
            for text_line in program.validation_lines(result):
                print(text_line)
    return 0
