"""Random small fleets, in the words of `register`: uneven, of mixed depth, with all attributes.

Few nodes and few domains find as much as many do, because what is wrong shows where things run
out; and they leave time for more seeds.
"""

import random

LOCATIONS = ("/s1/r1", "/s1/r2", "/s2/r1", "/s2/r2", "/s3", "/s4/r1/c1", "/s1/r1/c2")
ELSEWHERE = ("/s1/r1", "/s2/r9", "/s5", "-")
# Racks of the same size, as careful people build them.
EVEN = ("/s1/r1", "/s2/r1", "/s3/r1")
SETTINGS = (
    "",
    "max_in=1 max_out=1 max_copies_from=1 max_open=3 max_per_batch=2",
    "max_in=2 max_out=1 max_copies_from=2 max_open=200 max_per_batch=500",
    "max_in=5 max_out=5 max_copies_from=5 max_open=200 max_per_batch=500",
)


def draw_settings(rng: random.Random) -> str:
    """A `settings` command: limits, deadlines, the mode of completion."""
    parts = ["settings levels=site", rng.choice(SETTINGS)]
    parts.append("completion=immediate" if rng.random() < 0.15 else "")
    deadline, backoff = rng.choice(((30, 0), (600, 10)))
    parts.append(f"deadline={deadline} retention=100 backoff={backoff}")
    parts.append(rng.choice(("", "hold_window=0", "hold_window=60")))
    parts.append(rng.choice(("", "", "max_per_domain_pair=1", "max_per_domain_pair=2")))
    return " ".join(filter(None, parts))


def draw_fleet(rng: random.Random) -> dict[str, str]:
    """Attributes of each node as `register` takes them."""
    even = rng.random() < 0.3
    count = rng.randint(4, 10)
    plain = rng.random() < 0.3
    return {
        f"n{number}": draw_node(rng, EVEN[number % 3] if even else rng.choice(LOCATIONS), plain)
        for number in range(1, count + 1)
    }


def draw_node(rng: random.Random, location: str, plain: bool) -> str:
    parts = [f"location={location}"]
    if not plain:
        parts += [
            rng.choice(("", "disk=ssd", "disk=hdd")),
            rng.choice(("", "power=a", "power=b")),
            rng.choice(("", "", "weight=2")),
            rng.choice(("", "", "", "capacity=4")),
            rng.choice(("", "", "", "", "leader=false")),
        ]
    return " ".join(filter(None, parts))
