"""The command `configs`: the configs of this program and of others, with their sizes."""
