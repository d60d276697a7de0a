"""Tokenizers, which turn text into ids and back: find, check and train them."""
