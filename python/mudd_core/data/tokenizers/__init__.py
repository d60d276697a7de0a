"""Tokenizers, which turn text into ids and back: where they come from, and how they are checked and trained."""
