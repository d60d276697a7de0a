"""Documents before they are rows: their files, frames and held-out split, and the token caches built from them."""
