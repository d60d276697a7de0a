"""Log-probabilities of continuations: sequences in batches, common prefixes once, logits only for the targets."""
