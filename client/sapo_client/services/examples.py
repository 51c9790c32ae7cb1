"""The unit files in `client/deploy/`: `python -m sapo_client.services.examples client/deploy` writes them.

`sapo service install` writes a unit with the paths of the machine; these have the usual ones, to be read and
copied. A test compares them with what this module writes.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from sapo_client.services.units import ServiceTerms, launchd_agent, systemd_unit

_SYSTEM = ServiceTerms(
    name="sapo",
    command=(
        "/opt/sapo/bin/sapo", "join", "--identity", "/var/lib/sapo/key.json",
        "--data-dir", "/var/lib/sapo/node",
    ),
    data=Path("/var/lib/sapo/node"),
    passphrase_file=Path("/etc/sapo/passphrase"),
    user="sapo",
)  # fmt: skip
_HOME = Path("/home/ada")
_USER = ServiceTerms(
    name="sapo",
    command=(
        f"{_HOME}/.local/bin/sapo", "join", "--identity", f"{_HOME}/.config/sapo/keys/key.json",
        "--data-dir", f"{_HOME}/.local/share/sapo/node",
    ),
    data=_HOME / ".local/share/sapo/node",
    passphrase_file=_HOME / ".config/sapo/passphrase",
)  # fmt: skip
_MAC_HOME = Path("/Users/ada")
_MAC = replace(
    _USER,
    command=tuple(word.replace(str(_HOME), str(_MAC_HOME)) for word in _USER.command),
    data=_MAC_HOME / "Library/Application Support/sapo/node",
    passphrase_file=_MAC_HOME / ".config/sapo/passphrase",
)


def files() -> dict[str, str]:
    """Return every unit file by its path below `client/deploy/`."""
    return {
        "systemd/sapo.service": systemd_unit(_SYSTEM),
        "systemd/sapo-user.service": systemd_unit(_USER),
        "launchd/org.sapo-swarm.sapo.plist": launchd_agent(_MAC),
    }


def main(arguments: list[str]) -> None:
    """Write the files into the given folder."""
    [folder] = arguments
    for name, text in files().items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
