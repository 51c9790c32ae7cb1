"""A small network: a namespace for every site, home networks behind routers, a relay between all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.namespaces import kernel
from support.namespaces.plan import HOME_NETWORK, Site
from support.namespaces.relay import INTERFACE

_TESTS: Final = Path(__file__).resolve().parents[2]

_ROUTER_RULES: Final = f"""
table ip router {{
    chain translate {{
        type nat hook postrouting priority srcnat
        oifname "{INTERFACE}" masquerade
    }}
    chain through {{
        type filter hook forward priority filter; policy drop
        ct state established,related accept
        iifname "home" accept
    }}
    chain to_itself {{
        type filter hook input priority filter; policy accept
        iifname "{INTERFACE}" ct state new drop
    }}
}}
"""
"""A home router: addresses are translated, and a connection is let in only if it was opened from inside."""


@dataclass
class SiteNetwork:
    """The sites of a running network.

    Attributes:
        sites: their present state, in the order of their numbers.
    """

    sites: list[Site]
    relay: subprocess.Popen[str]

    def namespace(self, number: int) -> str:
        """Return the namespace in which a site's node runs."""
        return kernel.name_of(self.sites[number].name)

    def command(self, number: int, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the command line that runs another one at a site."""
        return ("ip", "netns", "exec", self.namespace(number), *argv)

    def lose(self, share: float) -> None:
        """Lose this share of all packets from now on."""
        self._order("loss", share=share)

    def cut(self) -> float:
        """Block all packets between the two sides; return the Unix time of the begin."""
        self._order("sides", sides=[site.side for site in self.sites])
        return time.time()

    def heal(self) -> None:
        """End the partition."""
        self._order("sides", sides=None)

    def move(self, number: int) -> None:
        """Give a site another public address, as providers do; connections to the old one are dead."""
        old, new = self.sites[number], self.sites[number].moved()
        uplink = kernel.name_of(old.uplink)
        _give_address(uplink, new.address)
        kernel.run("ip", "-n", uplink, "address", "delete", f"{old.address}/32", "dev", INTERFACE)
        self.sites[number] = new
        self._order("assign", site=number, address=new.address)

    def counts(self) -> dict[str, float]:
        """Return what the relay did: packets by fate, bytes, and its seconds of processor time."""
        return self._order("count")

    def _order(self, order: str, **fields: object) -> dict[str, float]:
        return _request(self.relay, {"order": order, **fields})


@contextmanager
def site_network(
    sites: Sequence[Site], delays: Sequence[Sequence[float]], seed: int
) -> Iterator[SiteNetwork]:
    """Yield a network without losses; delete all of it in the end, whatever happens.

    Args:
        delays: from each site to each other, in seconds.
    """
    kernel.delete_left_over()
    with ExitStack() as stack:
        stack.callback(kernel.delete_left_over)
        for site in sites:
            for end in dict.fromkeys((site.name, site.uplink)):
                kernel.add(kernel.name_of(end))
        relay = stack.enter_context(_relay())
        uplinks = [kernel.name_of(site.uplink) for site in sites]
        _request(relay, {"namespaces": uplinks, "delays": delays, "seed": seed})
        world = SiteNetwork(list(sites), relay)
        for number, site in enumerate(sites):
            _connect(site)
            world._order("assign", site=number, address=site.address)
        yield world


@contextmanager
def _relay() -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"PYTHONPATH": f"{_TESTS}:{os.environ.get('PYTHONPATH', '')}"}
    argv = (sys.executable, "-m", "support.namespaces.relay")
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _request(relay: subprocess.Popen[str], order: dict[str, Any]) -> dict[str, float]:
    """Send the relay a line, and return its answer."""
    assert relay.stdin is not None
    assert relay.stdout is not None
    relay.stdin.write(json.dumps(order) + "\n")
    relay.stdin.flush()
    line = relay.stdout.readline()
    if not line:
        raise RuntimeError(f"the relay ended with exit code {relay.wait()}; its message is above")
    answer: dict[str, float] = json.loads(line)
    return answer


def _connect(site: Site) -> None:
    """Give a site its address, and its home network if it has one."""
    uplink = kernel.name_of(site.uplink)
    _give_address(uplink, site.address)
    if not site.behind_router:
        return
    node = kernel.name_of(site.name)
    kernel.run("ip", "-n", uplink, "link", "add", "home", "type", "veth", "peer", "eth0", "netns", node)
    kernel.run("ip", "-n", uplink, "address", "add", f"{HOME_NETWORK}.1/24", "dev", "home")
    kernel.run("ip", "-n", uplink, "link", "set", "home", "up")
    kernel.run("ip", "-n", node, "address", "add", f"{HOME_NETWORK}.2/24", "dev", "eth0")
    kernel.run("ip", "-n", node, "link", "set", "eth0", "up")
    kernel.run("ip", "-n", node, "route", "add", "default", "via", f"{HOME_NETWORK}.1")
    kernel.run("ip", "netns", "exec", uplink, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
    kernel.run("ip", "netns", "exec", uplink, "nft", "-f", "-", text=_ROUTER_RULES)


def _give_address(uplink: str, address: str) -> None:
    kernel.run("ip", "-n", uplink, "address", "add", f"{address}/32", "dev", INTERFACE)
    kernel.run("ip", "-n", uplink, "link", "set", INTERFACE, "up")
    kernel.run("ip", "-n", uplink, "route", "replace", "default", "dev", INTERFACE, "src", address)
