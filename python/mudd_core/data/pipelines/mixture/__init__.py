"""Weighted mixtures of several sources (data.mix): their data, their rows, and the tokenizer that they share."""
