"""The numbers of ranks of --project."""
from sweep.failure import USAGE, Failure

MOST_RANKS, MOST_PLACES = 4096, 64


def ranks_of(text):
    """"2-4096": 2, 4, 8 ... 4096; "2,3,6"."""
    found = set()
    for part in text.split(","):
        ends = part.strip().split("-")
        if len(ends) > 2 or not all(end.isascii() and end.isdecimal() and
                                    1 <= int(end) <= MOST_RANKS for end in ends):
            raise Failure(f"--project {text}: expected numbers of ranks up to {MOST_RANKS}, as "
                          "2-4096 (2, 4, 8 ...) or 2,3,6", USAGE)
        first, last = int(ends[0]), int(ends[-1])
        if first > last:
            raise Failure(f"--project {text}: {first} is above {last}", USAGE)
        while first < last:
            found.add(first)
            first *= 2
        found.add(last)
    if len(found) > MOST_PLACES:
        raise Failure(f"--project {text}: more than {MOST_PLACES} numbers of ranks", USAGE)
    return sorted(found)
