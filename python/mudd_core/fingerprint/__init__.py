"""Fingerprints of training steps: a digest of each value, and the first value at which two steps differ."""

from mudd_core.fingerprint.compared import Pair, first_difference
from mudd_core.fingerprint.difference import Difference, measure
from mudd_core.fingerprint.lines import Header, Key, Line
from mudd_core.fingerprint.record import StepRecord
from mudd_core.fingerprint.recording import Recording, record_step, recording

__all__ = [
    "Difference",
    "Header",
    "Key",
    "Line",
    "Pair",
    "Recording",
    "StepRecord",
    "first_difference",
    "measure",
    "record_step",
    "recording",
]
