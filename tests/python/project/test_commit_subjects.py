"""Lint refuses commits whose subject starts with Merge or wip, from the commit on that added the rule."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import commit_subjects

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(root: Path, *words: str) -> str:
    """Return the output of git, which ignores the user's settings here."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    who = ["-c", "user.name=A Person", "-c", "user.email=person@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", *who, *words]
    done = subprocess.run(
        command, cwd=root, env={**own, **settings}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commit(root: Path, subject: str) -> str:
    git(root, "commit", "--quiet", "--allow-empty", "-m", subject)
    return git(root, "rev-parse", "--short", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with a wip commit before the rule."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch=main")
    commit(root, "wip: before the rule")
    (root / "tests").mkdir()
    (root / commit_subjects.RULE).write_text("the rule\n")
    git(root, "add", ".")
    commit(root, "lint: refuse such subjects")
    return root


def test_subjects_after_the_rule_are_refused(repository: Path) -> None:
    commit(repository, "gemm: merge two loops into one")
    commit(repository, "wipe: clear the folder, not only its files")
    assert commit_subjects.faults(repository) == []
    names = [commit(repository, subject) for subject in ("wip", "WIP: half of it")]
    git(repository, "checkout", "--quiet", "-b", "side", "HEAD~2")
    commit(repository, "side: another idea")
    git(repository, "checkout", "--quiet", "main")
    git(repository, "merge", "--quiet", "--no-ff", "--no-edit", "side")
    names.append(git(repository, "rev-parse", "--short", "HEAD"))
    found = commit_subjects.faults(repository)
    assert sorted(line.split(":")[0] for line in found) == sorted(names)
    assert any("got 'Merge branch 'side''" in line for line in found)


def test_a_folder_without_the_whole_history_passes(repository: Path, tmp_path: Path) -> None:
    commit(repository, "wip")
    commit(repository, "gemm: pack x once")
    git(tmp_path, "clone", "--quiet", "--depth=2", repository.as_uri(), "shallow")
    assert commit_subjects.faults(tmp_path / "shallow") == []
    inside = repository / "unpacked" / "tests"  # an archive unpacked inside a repository
    inside.mkdir(parents=True)
    assert commit_subjects.faults(inside.parent) == []
    assert commit_subjects.faults(tmp_path) == []


def test_nothing_is_checked_before_the_rule_is_committed_or_without_git(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(repository, "wip")
    assert len(commit_subjects.faults(repository)) == 1
    monkeypatch.setenv("PATH", "")
    assert commit_subjects.faults(repository) == []
    monkeypatch.undo()
    git(repository, "checkout", "--quiet", "HEAD~2")
    assert commit_subjects.faults(repository) == []


def test_this_history_passes_and_the_program_says_so(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commit_subjects.main() == 0, capsys.readouterr().out
    name = commit(repository, "wip")
    found = commit_subjects.faults(repository)
    monkeypatch.setattr(commit_subjects, "faults", lambda: found)
    assert commit_subjects.main() == 1
    assert f"{name}: expected a subject like" in capsys.readouterr().out
