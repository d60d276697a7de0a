"""What the page of a run shows by the family of its model: a module for each kind of part, and one list of them."""
