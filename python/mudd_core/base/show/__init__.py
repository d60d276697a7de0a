"""Output for people: charts, tables, the terminal, and strings that are safe to print."""
