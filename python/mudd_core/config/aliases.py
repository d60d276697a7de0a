"""Names under which the original programs know a config -> our config below configs/."""

from __future__ import annotations

ALIASES = {
    "openai-community/gpt2": "gpt2/gpt2",
    "gpt2": "gpt2/gpt2",
    "distilgpt2": "gpt2/distilgpt2",
}
