"""Check that no subject of a commit starts with Merge or wip.

    python tests/commit_subjects.py     name the commits that do; exit code 1 if there is one

Only commits after the one that added this file are checked. A shallow clone or a folder without a repository passes.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RULE = "tests/commit_subjects.py"
_REFUSED = re.compile(r"Merge\b|wip\b", re.IGNORECASE)


def _git(root: Path, *words: str) -> list[str]:
    """Return the lines that git prints; none if it fails or is not installed."""
    try:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, errors="replace")
    except OSError:
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def faults(root: Path = ROOT) -> list[str]:
    """Return one line for each commit whose subject is refused."""
    # An archive may be unpacked inside another repository.
    top = _git(root, "rev-parse", "--show-toplevel")
    if not top or Path(top[0]).resolve() != root.resolve():
        return []
    if _git(root, "rev-parse", "--is-shallow-repository") != ["false"]:
        return []
    added = _git(root, "log", "--follow", "--diff-filter=A", "--format=%H", "--", RULE)
    if not added:
        return []
    commits = (line.split(" ", 1) for line in _git(root, "log", "--format=%h %s", f"{added[-1]}..HEAD"))
    return [
        f"{commit}: expected a subject like 'gemm: pack x once', got '{subject}'; rebase and say what the commit does"
        for commit, subject in commits
        if _REFUSED.match(subject)
    ]


def main() -> int:
    """Print the faults; the exit code."""
    found = faults()
    print("\n".join(found) if found else "subjects: no commit starts with Merge or wip")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
