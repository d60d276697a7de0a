"""The commands `mup check` and `mup transfer`: test whether a rate transfers across widths, and find the best rate."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from mudd_core.base.errors import UserError
from mudd_core.base.paths import local, output_folder
from mudd_core.config import Config, load_config
from mudd_core.config.suggest import nearest
from mudd_core.config.tool_arguments import ToolArguments, whole_number
from mudd_core.config.values import wholes
from mudd_core.tools.mup_checks.family import at_widths, checked_family

MOST_THREADS = 256
_LOWEST, _HIGHEST = -126, 127  # exponents of the smallest and the largest rate in fp32

HELP = """Checks a parametrisation over widths.

    check     coordinate check and wider-is-better over widths; exit 1 if one fails
    transfer  trains every width at a grid of rates; says whether all have the same best rate

`python3 launch.py mup check --help` and `python3 launch.py mup transfer --help` print their options."""


def main(words: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    parts = {"check": check, "transfer": transfer}
    if words and words[0] in parts:
        return parts[words[0]](words[1:])
    parser = ToolArguments("mup", HELP)
    parser.add_argument("part", metavar="check|transfer", help="the check to run")
    asked, _ = parser.read(words)
    raise UserError(f"[mup] expected check or transfer, got '{asked.part}'{nearest(asked.part, parts)}")


def _parser(name: str, text: str, config: str, widths: str) -> ToolArguments:
    parser = ToolArguments(f"mup {name}", text, fields="optim.rule=sp, model.u_init=sp or optim.lr=0.01")
    parser.add_argument(
        "--config",
        action="append",
        metavar="FILE",
        help=f"config of the family, default {config}; with several configs, each sets the width of one "
        "model",
    )
    parser.add_argument("--widths", metavar="N,N,...", help=f"values of model.d_model, default {widths}")
    parser.add_argument(
        "--threads",
        type=whole_number(),
        default=0,
        metavar="N",
        help="compute threads; 0 = all cores",
    )
    parser.set_defaults(default_config=config, default_widths=widths)
    return parser


def _members(args: argparse.Namespace, overrides: list[str], what: str) -> list[Config]:
    if not 0 <= args.threads <= MOST_THREADS:
        raise UserError(f"[{what}] --threads: expected 0 to {MOST_THREADS}, got {args.threads}")
    files = args.config or [args.default_config]
    configs = [load_config(file, overrides) for file in files]
    if len(configs) > 1:
        if args.widths:
            raise UserError(
                f"[{what}] --widths: expected one --config with it, because several configs set their "
                "own widths"
            )
        return checked_family(configs, what)
    return checked_family(
        at_widths(configs[0], wholes("[mup] --widths", args.widths or args.default_widths)), what
    )


def check(words: Sequence[str]) -> int:
    """Run `mup check`; return 0 if both checks pass, else 1."""
    from mudd_core import _core
    from mudd_core.tools.mup_checks import check as parts

    parser = _parser("check", parts.__doc__ or "", "mup/check.py", "32,64,128,256")
    parser.add_argument(
        "--seeds",
        type=whole_number(3),
        default=3,
        metavar="N",
        help="number of seeds of the initial weights, three or more",
    )
    parser.add_argument(
        "--steps",
        type=whole_number(0),
        default=40,
        metavar="N",
        help="updates of the wider-is-better check; 0 skips it",
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        default="runs/mup-check",
        help="folder for the SVG and HDF5 files",
    )
    parser.add_argument(
        "--unscaled",
        default="",
        metavar="NAME",
        help="use the unscaled rate for the matrices with this name ending (attn.q.w, ffn.up.w, head)",
    )
    args, overrides = parser.read(words)
    local(args.out, "[mup check] --out")
    members = _members(args, overrides, "mup check")
    widths = [config.model.d_model for config in members]
    if len(widths) < 4 or widths[-1] < 8 * widths[0]:
        raise UserError(
            f"[mup check] widths: expected four or more spanning 8x, got {', '.join(map(str, widths))}"
        )
    if 0 < args.steps < 8:
        raise UserError(f"[mup check] --steps: expected 0 or a whole number of at least 8, got {args.steps}")
    out = output_folder(args.out, "[mup check] --out")
    _core.set_num_threads(args.threads)
    found = parts.coordinates(members, args.seeds, args.unscaled)
    learned = parts.wider(members, args.seeds, args.steps, args.unscaled) if args.steps else None
    return parts.report(members, found, learned, out)


def transfer(words: Sequence[str]) -> int:
    """Run `mup transfer`; return 0 when the table is complete, whatever the result is."""
    from mudd_core.tools.mup_checks import transfer as grid

    parser = _parser("transfer", grid.__doc__ or "", "mup/tiny.py", "128,256,512")
    parser.add_argument(
        "--low",
        type=whole_number(),
        default=-10,
        metavar="N",
        help="exponent of the smallest learning rate, which is 2^N",
    )
    parser.add_argument(
        "--high",
        type=whole_number(),
        default=-2,
        metavar="N",
        help="exponent of the largest learning rate, which is 2^N",
    )
    parser.add_argument(
        "--step",
        type=whole_number(1),
        default=2,
        metavar="N",
        help="step of the exponent between learning rates",
    )
    parser.add_argument(
        "--target",
        type=whole_number(0),
        default=0,
        metavar="N",
        help="width of the large model; 0 = four times the largest of --widths",
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        default="runs/mup-transfer",
        help="folder for the runs, the table and the SVG",
    )
    args, overrides = parser.read(words)
    local(args.out, "[mup transfer] --out")
    members = _members(args, overrides, "mup transfer")
    if len(members) < 3:
        raise UserError(f"[mup transfer] widths: expected three or more, got {len(members)}")
    if not _LOWEST <= args.low <= args.high <= _HIGHEST:
        raise UserError(
            f"[mup transfer] grid: expected {_LOWEST} <= --low <= --high <= {_HIGHEST}, got {args.low} and {args.high}"
        )
    exponents = list(range(args.low, args.high + 1, args.step))
    if len(exponents) < 2:
        raise UserError("[mup transfer] grid: expected at least two rates between --low and --high")
    out = output_folder(args.out, "[mup transfer] --out")
    results = grid.run_grid(members, exponents, out)
    target = args.target or 4 * members[-1].model.d_model
    print(grid.report(members, exponents, results, out))
    print(grid.large_command(args, overrides, results, exponents, target))
    return 0
