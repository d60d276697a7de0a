"""The command `completion`: Tab completion of bash and zsh."""
