"""Train several families on the same text and compare them.

    python3 launch.py bakeoff                                   all families at equal parameters
    python3 launch.py bakeoff --equal=flops --seeds=5 --out=runs/equal_flops
    python3 launch.py bakeoff --preset=muddformer-readme
    python3 launch.py bakeoff --families=transformer_pp,gpt2 model.d_model=192 --out=runs/wide
    python3 launch.py bakeoff --ranks=4                         each run with four processes

Overrides apply to all models. On Ctrl-C or SIGTERM it saves and exits with code 75; the same command
resumes. It writes result.json and result.html to --out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mudd_core.base.paths import local
from mudd_core.base.regular_files import write_text
from mudd_core.config import FAMILIES, Config, mesh_of
from mudd_core.config.tool_arguments import ToolArguments
from mudd_core.config.values import whole
from mudd_core.run.ranks.rank_checks import hold_machine
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.store.json_files import write_json
from mudd_core.tools.bakeoff.comparison import EQUAL, PRESETS, Comparison, comparison
from mudd_core.tools.bakeoff.result import compare, read_curves
from mudd_core.tools.bakeoff.result_page import page, terminal_table
from mudd_core.tools.bakeoff.runs import run_all

LEAST_TOKENS = 2_000_000  # tokens; with fewer, the curves of families do not differ clearly yet


@dataclass(frozen=True)
class Asked:
    """The parsed arguments. families: the first one is the reference. overrides: apply to every config."""

    preset: str
    families: tuple[str, ...]
    equal: str
    tokens: int
    seeds: int
    out: Path
    overrides: tuple[str, ...]

    @classmethod
    def of(cls, words: Sequence[str], job: Sequence[str] = ()) -> Asked:
        """Parse the arguments; raise UserError for a wrong argument. job: as in ToolArguments.read."""
        args, overrides = _parser().read(words, job)
        return cls(
            args.preset,
            tuple(args.families.split(",")),
            args.equal,
            whole("[bakeoff] --tokens", args.tokens, 1, 2**53),
            whole("[bakeoff] --seeds", args.seeds, 1, 2**53),
            local(args.out or f"runs/bakeoff-{args.preset}", "[bakeoff] --out"),
            tuple(overrides),
        )

    def candidates(self, families: Sequence[str], equal: str, vocab: int) -> Comparison:
        """Return the models to compare; raise UserError for an unknown family or override."""
        return comparison(self.preset, families, equal, self.tokens, self.overrides, vocab)

    def probe(self, family: str) -> Config:
        """Return the config of a family before the vocabulary is known; all families have the same data."""
        return self.candidates([family], "flops", 1 << 20).candidates[0].config


def main(words: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    return by_ranks(words, Ranks())


def require_ranks(words: Sequence[str], job: Sequence[str]) -> Callable[[int], None]:
    """Raise UserError for wrong arguments. Return a check that raises UserError if N ranks cannot train a model.

    job: as in ToolArguments.read.
    """
    asked = Asked.of(words, job)

    def require(ranks: int) -> None:
        for family in asked.families:
            mesh_of(asked.probe(family), ranks)

    return require


def by_ranks(words: Sequence[str], ranks: Ranks) -> int:
    """Run the command on each rank of a job. All ranks train every run together; rank 0 writes and prints."""
    asked = ranks.together(lambda: Asked.of(words))
    tokens, seeds, out = asked.tokens, asked.seeds, asked.out
    from mudd_core.base.surroundings import environment_text
    from mudd_core.data.pipelines import prepare
    from mudd_core.run.build.run_data import shared_data
    from mudd_core.run.loop import signals

    probe = ranks.together(lambda: asked.probe(asked.families[0]))
    hold_machine(ranks, probe)
    vocab = int(shared_data(prepare, probe, None, ranks).vocab_size)
    found = ranks.together(lambda: asked.candidates(asked.families, asked.equal, vocab))
    few = f" (fewer than the {LEAST_TOKENS:,} at which families part)" if tokens < LEAST_TOKENS else ""
    say: Callable[[str], None] = print if ranks.first else lambda text: None
    say(f"{found.title}: {len(found.candidates)} models, {seeds} seeds, {tokens:,} tokens a run{few}; {out}")
    signals.take_for_good()
    if not run_all(found, seeds, out, say, ranks):
        return 75

    def write() -> int:
        result = compare(
            found, read_curves(found, seeds, out, vocab), vocab, environment_text(probe.train.precision)
        )
        write_json(out / "result.json", result)
        write_text(out / "result.html", page(result))
        say(f"\n{terminal_table(result)}\n\nwrote {out / 'result.json'}\n      {out / 'result.html'}")
        return 0

    return int(ranks.from_first(write))


def _parser() -> ToolArguments:
    parser = ToolArguments("bakeoff", __doc__ or "", fields="model.d_model=192")
    parser.add_argument(
        "--preset", default="families", choices=PRESETS, help="comparison to run (default: families)"
    )
    parser.add_argument(
        "--families",
        default=",".join(FAMILIES),
        metavar="A,B",
        help="the families to compare, the reference first (default: all)",
    )
    parser.add_argument(
        "--equal",
        default=next(iter(EQUAL)),
        choices=EQUAL,
        metavar="WHAT",
        help="quantity that is equal for all models: parameters (default; tokens are equal too) or flops",
    )
    parser.add_argument(
        "--tokens", default="2097152", metavar="N", help="training tokens per run (default 2,097,152)"
    )
    parser.add_argument(
        "--seeds",
        default="3",
        metavar="N",
        help="number of runs per model, each with another seed (default 3)",
    )
    parser.add_argument(
        "--out", default="", metavar="DIR", help="output folder (default runs/bakeoff-<preset>)"
    )
    return parser
