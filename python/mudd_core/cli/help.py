"""The texts of --help."""

from __future__ import annotations

from mudd_core.cli.names import COMMANDS, OPTIONS, TOOLS
from mudd_core.config import FAMILIES, Config
from mudd_core.config.describe import field_help
from mudd_core.surroundings import ENVIRONMENT


def usage(config: Config | None) -> str:
    """The text of --help: commands, options and every field: this config's, or the default of each family."""
    lines = ["usage: launch.py [command] --config=FILE [options] [section.field=value ...]", "", "commands:"]
    lines += [f"  {name:<10} {text}" for name, text in COMMANDS.items()]
    lines += [f"  {name:<10} {text}; {name} --help tells more" for name, (_, text) in TOOLS.items()]
    lines += ["", "options:"]
    for name, (value, text) in OPTIONS.items():
        lines.append(f"  {name + ('=' + value if value else ''):<16} {text}")
    lines += [
        "",
        "A config file is Python code and runs with your rights; one that ends in .json runs nothing.",
        f"Environment: {', '.join(ENVIRONMENT)}.",
        "",
        "config fields with their default; set one by section.field=value, --config.section.field=value or",
        "--field value:",
        field_help(config or Config()),
    ]
    if config is None:
        others = (family() for name, family in FAMILIES.items() if name != Config().model.family)
        for model in others:
            lines += ["", f"with another family, {model.family}, the fields of model are:"]
            lines.append(field_help(Config(model=model), only="model."))
    return "\n".join(lines)
