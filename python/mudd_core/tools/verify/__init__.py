"""The command verify: an exported folder compared with its statement, and the weights derived again."""
