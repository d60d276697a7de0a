"""Write grain_order.json, the record orders of the loader grain. Run in a separate venv: pip install grain==0.2.18."""

import json
from pathlib import Path

from grain._src.python.experimental.index_shuffle.python import index_shuffle_module as grain

SIZES = [(0, 1), (0, 2), (0, 10), (42, 37), (42, 1000), (7, 65536), (7, 65537), (7, 65538), (123, 300000)]
ORDERS = []
for seed, n in [*SIZES, (2**32 - 1, 1000), (9, 2**31)]:
    at = list(range(n)) if n <= 40 else [0, 1, n // 3, n // 2, n - 1]
    image = [grain.index_shuffle(i, n - 1, seed, 4) for i in at]
    ORDERS.append({"seed": seed, "n": n, "at": at, "image": image})
text = json.dumps({"grain": "0.2.18", "orders": ORDERS}, indent=0)
Path(__file__).with_name("grain_order.json").write_text(text)
