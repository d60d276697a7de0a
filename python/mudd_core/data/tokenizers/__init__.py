"""Tokenizers: text to ids and back, where they come from, how they are checked and trained."""
