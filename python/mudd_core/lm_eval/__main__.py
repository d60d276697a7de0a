"""The command of lm-evaluation-harness with the model class and the tasks of mudd_core."""

from __future__ import annotations

import importlib
import sys

from mudd_core.base.errors import UserError
from mudd_core.lm_eval import TASKS, register

_INCLUDE = "--include_path"


def main() -> None:
    """Run `lm_eval` on the arguments, with the folder of tasks unless they name another one."""
    try:
        register()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(UserError.exit_code) from None
    if "--tasks" in sys.argv and not any(word.startswith(_INCLUDE) for word in sys.argv):
        sys.argv += [_INCLUDE, str(TASKS)]
    importlib.import_module("lm_eval.__main__").cli_evaluate()


if __name__ == "__main__":
    main()
