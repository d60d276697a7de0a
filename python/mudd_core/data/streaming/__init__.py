"""Documents tokenized ahead of the training by processes of their own (data.cache=stream)."""
