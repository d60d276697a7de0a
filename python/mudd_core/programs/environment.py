"""Environment variables that the original programs read."""

from __future__ import annotations

from mudd_core.programs.row import Row, mapped, noted

_NAME = "environment"
_HARDWARE = "this program trains on CPUs; train.threads and MUDD_MAX_ISA limit the cores and instructions that it uses"

ROWS: tuple[Row, ...] = (
    mapped(_NAME, "HF_HOME", "", text="the folder below which hub names are looked up"),
    mapped(_NAME, "HF_TOKEN", "", text="sent to the hub if hub.online is true; never printed or saved"),
    mapped(_NAME, "WANDB_MODE", "", text="online or offline, if Weights & Biases is on"),
    mapped(_NAME, "COMPLIANCE_FILE", "", text="the file of the MLPerf log"),
    mapped(_NAME, "HYDRA_FULL_ERROR", "", text="1 shows the traceback of an error"),
    mapped(_NAME, "M_<KEY>", "", text="the key of a yml file in capitals, as key=value of the command line"),
    noted(_NAME, "HARDWARE", "", _HARDWARE),
    noted(_NAME, "PJRT_DEVICE", "", _HARDWARE),
    noted(_NAME, "XLA_FLAGS", "", "there is no XLA here"),
    noted(_NAME, "XLA_PYTHON_CLIENT_MEM_FRACTION", "", "there is no XLA here; --plan prints the memory"),
    noted(_NAME, "XLA_USE_BF16", "", "there is no XLA here; train.precision=bf16 is the same choice"),
)


def environment_notes(environment: dict[str, str]) -> list[str]:
    """Return a line for each variable that is set and has no effect in mudd_core."""
    rows = {row.name: row for row in ROWS if row.fate == "noted"}
    other = "there is no XLA here"
    return [
        f"{name}: {rows[name].text if name in rows else other}"
        for name in sorted(environment)
        if name in rows or name.startswith("XLA_")
    ]
