"""The folders that tests read."""

from pathlib import Path

HELPERS = Path(__file__).resolve().parent  # tests/python, with modules that tests import
TESTS = HELPERS.parent
ROOT = TESTS.parent
