"""The Hydra grammar of the mixture-of-experts benchmark: `launch.py clm KEY=VALUE ...`."""

from mudd_core.programs.moe.hydra.resolve import resolve

__all__ = ["resolve"]
