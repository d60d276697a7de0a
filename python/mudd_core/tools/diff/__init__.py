"""The command diff: what differs in two runs, their first step that differs, and the first node that differs."""
