"""`launch.py compare A B`: what differs between runs, and from which step on their numbers do."""
