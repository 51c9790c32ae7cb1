"""Manifests and successors as JSON text, with mutations at which JSON readers of several languages differ."""

import json
import random
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from reference.vectors import load

MANIFESTS = load("manifests")
SUCCESSORS = load("derivations")["successors"]


@dataclass(frozen=True)
class Token:
    """Text that goes into a document as it is."""

    text: str


NUMBERS = (
    "0", "1", "2", "3", "15", "16", "17", "255", "256", "8192", "8193", "-0", "-1", "65536", "65537",
    "4294967295",
    "4294967296", "9007199254740991", "9007199254740992", "9007199254740993", "9223372036854775808",
    "18446744073709551615", "18446744073709551616", "-9007199254740993", "123456789012345678901234567890",
    "1.0", "1.", ".5", "1e0", "1E2", "1e+2", "-0.0", "0.1", "4.35", "1e16", "9999999999999999.0",
    "1e15", "1e21",
    "1e22", "1e23", "1e-4", "1e-5", "0.0001", "0.00001", "0.000123", "1e-7", "5e-324", "2e-324",
    "3e-324", "1e-400",
    "2.2250738585072011e-308", "2.2250738585072014e-308", "1.7976931348623157e308",
    "1.7976931348623159e308",
    "1e308", "1e309", "1e400", "-1e400", "9007199254740993.0", "0.30000000000000004", "123456789012345680",
    "1.7976931348623158e308", "8.41e21", "9.5367431640625e-07", "5e-5", "299792458.0", "100.0",
    "1234.5678e-2",
    "00", "01", "-01", "+1", "- 1", "0x10", "1_000", "1e", "1e+", "NaN", "Infinity", "-Infinity",
    "nan", "1n", "１",
    "9" * 4300, "9" * 4301, "-" + "9" * 4300, "1" + "0" * 400 + ".0", "0." + "0" * 400 + "1",
)  # fmt: skip

STRINGS = (
    r'""', r'"a"', r'"\ud800"', r'"\udc38"', r'"\ud83d\udc38"', r'"\ud83d\ud83d\udc38"', r'"\udc38\ud83d"',
    r'"\u0000"', r'"\u001F"', r'"\u007f"', r'"\u00E9"', r'"e\u0301"', r'"\ufeff"', r'"\uFFFF"',
    r'"\u2028"', r'"\/"',
    r'"\x41"', r'"\u12"', r'"\u+123"', r'"\u 123"', r'"\U0001F438"', r'"\v"', r'"\a"', r'"\0"', '"\t"',
    '"\n"',
    '"\x7f"', '"\u0085"', '"\u2028"', '"\ufeff"', '"\U0001f438"', '"\uffff"', "'a'", '"a', r'"\"',
    r'"\\"', '"$&"',
    '"{question}"', '"{question}{question}"', '"{ question }"', '"{QUESTION}"', '"plain"', '"tag"',
    '"Plain"',
    '"open"', '"bond"', '"eas"', '"1"', '"01"', '"+1"', '" 1"', '"1 "', '"1_0"', '"１"', '"1\\n"',
    '"1e3"', '"0"',
    '"79228162514264337593543950335"', '"79228162514264337593543950336"',
)  # fmt: skip

NAMES = (
    '"__proto__"', '"constructor"', '"toString"', '"hasOwnProperty"', '"length"', '"0"', '"9"', '"10"',
    '"-1"',
    r'"\uffff"', r'"\ud800\udc00"', r'"\ue000"', r'"\ud83d\udc38"', r'"\ud800"', r'"\udfff"',
    r'"\ud7ff"', '""',
    '"a"', '"A"', '"\u00e9"', r'"e\u0301"', r'"\u0000"', '"version"', '"gate"', '"count"', '"kind"',
    '"config"',
    '"name"', '"Name"', '"retired"', '"bootstrap"',
)  # fmt: skip

OTHERS = (
    "true",
    "false",
    "null",
    "{}",
    "[]",
    "[[]]",
    '{"a":1,"a":1}',
    '{"a":{"b":1},"\\u0061":2}',
    "undefined",
    "",
)

LEVELS = tuple("[" * depth + "]" * depth for depth in (9, 10, 11, 12, 13, 14, 15, 16, 17))

SPACES = (
    " ",
    "\t",
    "\r\n",
    "\x0b",
    "\x0c",
    "\u00a0",
    "\ufeff",
    "\u2028",
    "\u3000",
    "//\n",
    "/**/",
    ",",
    "\x00",
    "#",
)


def written(value: Any) -> str:
    """Return the JSON text of a value, in which tokens and pairs of names and values may stand."""
    if isinstance(value, Token):
        return value.text
    if isinstance(value, dict):
        pairs = [f"{written(name)}:{written(one)}" for name, one in value.items()]
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _token(rng: random.Random) -> Token:
    kind = rng.choices((NUMBERS, STRINGS, OTHERS, LEVELS), (6, 4, 2, 1))[0]
    return Token(rng.choice(kind))


def _hexadecimal(rng: random.Random, text: str) -> str:
    """Return another spelling of hexadecimal digits, right or wrong."""
    digits = text.removeprefix("0x")
    spellings = (
        "0x" + digits, "0X" + digits, digits.upper(), "0x" + digits.upper(), digits[:2] + " " + digits[2:],
        " " + digits, digits + "\n", "0x0x" + digits, digits[:-1], digits[:-2], digits + "00",
        "0x" + digits[:-1],
        digits.replace("0", "０", 1), digits.replace("0", "O", 1), "0x " + digits,
        digits[:1] + " " + digits[1:],
        digits[:2] + "\u00a0" + digits[2:], digits[:2] + "\t" + digits[2:], "",
    )  # fmt: skip
    return rng.choice(spellings)


def _edit(rng: random.Random, value: Any) -> Any:
    """Return a value with one thing in it changed."""
    if isinstance(value, dict) and value and rng.random() < 0.95:
        fields = dict(value)
        name = rng.choice(list(fields))
        match rng.randrange(12):
            case 0:
                del fields[name]
            case 1:
                fields[Token(rng.choice(NAMES))] = _token(rng)
            case 2:
                fields[Token(json.dumps(name) if isinstance(name, str) else name.text)] = _token(rng)
            case 3:
                items = list(fields.items())
                rng.shuffle(items)
                fields = dict(items)
            case _:
                fields[name] = _edit(rng, fields[name])
        return fields
    if isinstance(value, list) and value and rng.random() < 0.9:
        items = list(value)
        at = rng.randrange(len(items))
        match rng.randrange(6):
            case 0:
                items.append(items[at])
            case 1:
                del items[at]
            case 2:
                items.reverse()
            case _:
                items[at] = _edit(rng, items[at])
        return items
    if isinstance(value, str) and len(value) >= 40 and rng.random() < 0.8:
        return _hexadecimal(rng, value)
    return _token(rng)


def _spaced(rng: random.Random, text: str) -> str:
    at = rng.choice((0, len(text), rng.randrange(len(text) + 1)))
    return text[:at] + rng.choice(SPACES) + text[at:]


def mutated_manifest(seed: int, number: int) -> str:
    """Return the text of a manifest file that may be none."""
    rng = random.Random(f"manifests:{seed}:{number}")
    document = deepcopy(MANIFESTS[rng.choice(list(MANIFESTS))])
    for _ in range(rng.choice((1, 1, 1, 2))):
        if rng.random() < 0.25 and _has_families(document):
            family = rng.choice(document["suite"]["families"])
            name = rng.choice(NAMES)
            config = family.get("config")
            family["config"] = {**(config if isinstance(config, dict) else {}), Token(name): _token(rng)}
        else:
            document = _edit(rng, document)
    text = written(document)
    return _spaced(rng, text) if rng.random() < 0.1 else text


def _has_families(document: Any) -> bool:
    suite = document.get("suite") if isinstance(document, dict) else None
    families = suite.get("families") if isinstance(suite, dict) else None
    return isinstance(families, list) and bool(families) and all(isinstance(one, dict) for one in families)


def mutated_succession(seed: int, number: int) -> tuple[str, list[tuple[int, bytes]]]:
    """Return the name of a manifest, and announced documents with the epochs that they are announced for."""
    rng = random.Random(f"successors:{seed}:{number}")
    vector = rng.choice([one for one in SUCCESSORS if one["announced"]])
    announced = []
    for place, one in enumerate(vector["announced"]):
        document = json.loads(one["document"])
        if rng.random() < 0.8:
            document = _edit(rng, document)
        text = written(document)
        text = _spaced(rng, text) if rng.random() < 0.1 else text
        data = text.encode()
        if data and rng.random() < 0.05:
            at = rng.randrange(len(data))
            data = data[:at] + rng.choice((b"\xff", b"\xed\xa0\x80", b"\xc0\x80")) + data[at:]
        announced.append((20 * (place + 1), data))
    return vector["manifest"], announced
