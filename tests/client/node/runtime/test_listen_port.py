"""A node that takes any free port listens on the same one after a restart."""

from __future__ import annotations

from pathlib import Path

import trio
from support.swarm import Identity as Person
from support.swarm import make_manifest

from sapo_client import keystore
from sapo_client.config import Config, SwarmConfig
from sapo_client.node.runtime.host import open_transport, start_transport
from sapo_client.paths import DataDir


def _raise(error: Exception) -> None:
    raise error


async def test_a_restarted_node_has_the_addresses_that_its_peers_have_saved(tmp_path: Path) -> None:
    person = Person(1)
    identity = keystore.create(tmp_path / "key.json", None, node_seed=person.seed, account_key=person.secret)
    config = Config(
        identity=str(identity.path),
        data_dir=DataDir(tmp_path / "data").create().root,
        swarm=SwarmConfig(listen=("/ip4/127.0.0.1/tcp/0",), upnp=False),
    )
    found = []
    for _ in range(3):
        async with trio.open_nursery() as nursery:
            transport = open_transport(config, identity, make_manifest(), _raise)
            await start_transport(nursery, transport)
            found.append(transport.addresses)
            nursery.cancel_scope.cancel()
    assert found == [found[0]] * 3
