"""Documents before they become sequences: files, frames, the held-out split, and the token caches built from them."""
