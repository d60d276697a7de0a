"""One run: components, loop, state, log, work directory, progress, how it ends."""
