"""Sections 5 and 7.4: ladders, records, the mix of levels, lots and pay."""

from fractions import Fraction
from typing import Any

from reference.derive import tagged


def adds_up(ladders: list[list[int]], record: list[list[int]]) -> bool:
    """Return whether each ladder's weights add up to 1,000, and every other family has 1,000."""
    alone = [[family] for family in range(len(record)) if not any(family in ladder for ladder in ladders)]
    return all(sum(record[family][3] for family in part) == 1000 for part in ladders + alone)


def first_record(ladders: list[list[int]], families: int) -> list[list[int]]:
    """Return the record in force before any epoch is final."""
    above = [family for ladder in ladders for family in ladder[1:]]
    return [[0, 0, 0, 0 if family in above else 1000] for family in range(families)]


def medians(tallies: list[list[list[int]]]) -> list[list[int]]:
    """Return the lower median of each number of each family."""
    found = []
    for family in range(len(tallies[0])):
        numbers = [sorted(tally[family][kind] for tally in tallies) for kind in range(3)]
        found.append([min(2**32 - 1, counts[(len(counts) - 1) // 2]) for counts in numbers])
    return found


def middle(accounts: list[tuple[str, list[int]]]) -> list[int]:
    """Return the right, mixed and wrong groups (0, 1 and 2) that an auditor counts in a family."""
    if not accounts:
        return [0, 0, 0]
    sizes = sorted(len(groups) for _, groups in accounts)
    most = sizes[(len(sizes) - 1) // 2]
    taken = [(name, groups[:most]) for name, groups in accounts]
    cut = sorted((Fraction(groups.count(2), len(groups)), name, groups) for name, groups in taken)
    line = [group for _, _, groups in cut for group in groups]
    counted = line[len(line) // 3 : len(line) - len(line) // 3]
    return [counted.count(kind) for kind in range(3)]


def next_record(
    difficulty: dict[str, Any], before: list[list[int]], counted: list[list[int]]
) -> list[list[int]]:
    """Return the record of an epoch, from the one before and the epoch's right, mixed and wrong groups."""
    after = []
    for (right, mixed, wrong, weight), (r, m, w) in zip(before, counted, strict=True):
        after.append([right // 2 + r, mixed // 2 + m, wrong // 2 + w, weight])
    for ladder in difficulty["ladders"]:
        place = sum(step * before[family][3] for step, family in enumerate(ladder))
        right, mixed, wrong = (sum(counted[family][kind] for family in ladder) for kind in range(3))
        groups = right + mixed + wrong
        answered = right + mixed
        if groups >= 8 and answered > 3 * wrong:
            place += difficulty["step"] * (answered - 3 * wrong) // groups
        elif groups >= 8:
            down = difficulty["step"] * (3 * wrong - answered) // groups
            place -= down if down < difficulty["step"] else difficulty["step"]
        place = max(0, min(place, 1000 * (len(ladder) - 1)))
        for step, family in enumerate(ladder):
            after[family][3] = max(0, 1000 - abs(place - 1000 * step))
    return after


def mix(difficulty: dict[str, Any], record: list[list[int]]) -> list[int]:
    """Return the weight of each family in the mix."""
    weights = [row[3] for row in record]
    for ladder in difficulty["ladders"]:
        used = [record[family][3] > 0 for family in ladder]
        for step, family in enumerate(ladder):
            if any(used[max(0, step - 1) : step + 2]):
                weights[family] = max(weights[family], difficulty["floor"])
    return weights


def lot(swarm: bytes, beacon_: bytes, account: bytes, slot: int) -> int:
    """Return the lot of a slot."""
    return int.from_bytes(tagged("lot", swarm, beacon_, account, slot.to_bytes(4, "big"))[:4], "big")


def allowed(difficulty: dict[str, Any], record: list[list[int]], lot_: int) -> list[int]:
    """Return the families that a slot of a lot may have."""
    weights = mix(difficulty, record)
    found = set(range(len(record)))
    for ladder in difficulty["ladders"]:
        place = lot_ * sum(weights[family] for family in ladder) // 2**32
        reach = [sum(weights[family] for family in ladder[: step + 1]) for step in range(len(ladder))]
        level = next(family for family, up_to in zip(ladder, reach, strict=True) if up_to > place)
        found -= set(ladder) - {level}
    return sorted(found)


def points(record: list[list[int]], groups: list[int]) -> int:
    """Return the points for so many paid groups of each family."""
    eighths = 0
    for (right, mixed, wrong, _), count in zip(record, groups, strict=True):
        total = right + mixed + wrong
        eighths += (7 if total >= 8 and 4 * right >= 3 * total else 8) * count
    return eighths // 8
