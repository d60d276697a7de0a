"""YAML that expands beyond every limit when it is read, and the limit that the messages name."""

from mudd_core.base.bounded_yaml import MOST_NODES

BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{i}: &a{i} [{'*a' + str(i - 1)}, {'*a' + str(i - 1)}]\n" for i in range(1, 60)
)
NODES = f"at most {MOST_NODES} keys and values"
