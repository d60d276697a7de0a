"""Trains several families on the same text and compares them.

    python3 launch.py bakeoff                                   all families at equal parameters
    python3 launch.py bakeoff --equal=flops --seeds=5 --out=runs/equal_flops
    python3 launch.py bakeoff --preset=muddformer-readme
    python3 launch.py bakeoff --families=transformer_pp,gpt2 model.d_model=192 --out=runs/wide
    python3 launch.py bakeoff --ranks=4                         each run by four processes

Overrides hold for all models. Stopped (Ctrl-C, SIGTERM) it saves and exits 75; the same command goes
on. It writes result.json and result.html under --out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mudd_core.base.paths import local
from mudd_core.base.regular_files import write_text
from mudd_core.config import FAMILIES
from mudd_core.config.tool_arguments import ToolArguments
from mudd_core.config.values import whole
from mudd_core.run.ranks.rank_levels import hold_machine
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.store.json_files import write_json
from mudd_core.tools.bakeoff.comparison import Comparison
from mudd_core.tools.bakeoff.page import page, terminal_table
from mudd_core.tools.bakeoff.presets import PRESETS, comparison
from mudd_core.tools.bakeoff.result import compare, read_curves
from mudd_core.tools.bakeoff.runs import run_all

LEAST_TOKENS = 2_000_000  # below this, families have not parted yet


def main(words: Sequence[str]) -> int:
    """Runs the command; returns the exit code."""
    return by_ranks(words, Ranks())


def by_ranks(words: Sequence[str], ranks: Ranks) -> int:
    """As main, on each rank of a job: all of them train every run together, and rank 0 writes and prints."""
    asked, overrides = ranks.together(lambda: _parser().read(words))
    tokens = ranks.together(lambda: whole("[bakeoff] --tokens", asked.tokens, 1, 2**53))
    seeds = ranks.together(lambda: whole("[bakeoff] --seeds", asked.seeds, 1, 2**53))
    out = ranks.together(lambda: local(asked.out or f"runs/bakeoff-{asked.preset}", "[bakeoff] --out"))
    from mudd_core.base.surroundings import environment_text
    from mudd_core.data.pipelines import prepare
    from mudd_core.run.build.run_data import shared_data
    from mudd_core.run.loop import signals

    families = asked.families.split(",")

    def candidates(kept: Sequence[str], equal: str, vocab: int) -> Comparison:
        return ranks.together(lambda: comparison(asked.preset, kept, equal, tokens, overrides, vocab))

    probe = candidates(families[:1], "flops", 1 << 20).candidates[0].config
    hold_machine(ranks, probe)
    vocab = int(shared_data(prepare, probe, None, ranks).vocab_size)
    found = candidates(families, asked.equal, vocab)
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
        "--preset", default="families", choices=PRESETS, help="which comparison (default: families)"
    )
    parser.add_argument(
        "--families",
        default=",".join(FAMILIES),
        metavar="A,B",
        help="the families to compare, the reference first (default: all)",
    )
    parser.add_argument(
        "--equal",
        default="parameters",
        metavar="WHAT",
        help="parameters (default; equal tokens too) or flops",
    )
    parser.add_argument(
        "--tokens", default="2097152", metavar="N", help="tokens a run trains on (default 2,097,152)"
    )
    parser.add_argument("--seeds", default="3", metavar="N", help="runs of each model (default 3)")
    parser.add_argument("--out", default="", metavar="DIR", help="folder (default runs/bakeoff-<preset>)")
    return parser
