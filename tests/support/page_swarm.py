"""A whole node and a hostile stranger in one process, for tests of the page.

    python -m support.page_swarm FOLDER

The node's data directory is FOLDER/data. The stranger shares ``ROLLOUTS`` rollouts whose answers
are ``hostile_texts``; they are admitted, audited and shown like those of any author. Two of its messages are
refused before that: one is no message, one has another signature.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

import trio
from support.nodes import COMPLETIONS, Home, manifest_of, until
from support.swarm import Identity

from sapo_client.config_layers import resolve
from sapo_client.dashboard.history import open_history
from sapo_client.founding.tasks import NANO_TASKS
from sapo_client.swarm.simulated.memory import MemoryHub, MemoryTransport
from sapo_protocol.manifest import Manifest
from sapo_protocol.topics import certificates_topic, rollouts_topic

HOSTILE: Final = 180
"""Each combination of two pieces and a number of brackets (there are 175), in whole groups."""

ROLLOUTS: Final = -(-HOSTILE // COMPLETIONS)
READY: Final = "ready"
STRANGER: Final = Identity(9)
AT_ONCE: Final = 8
START_SECONDS: Final = 600

_PIECES: Final = (
    "<script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    "<svg/onload=window.pwned=1>",
    "<iframe srcdoc='<script>parent.pwned=1</script>'></iframe>",
    '"><body onload=window.pwned=1>',
    "</pre></section></main><script>window.pwned=1</script>",
    "<a href=javascript:window.pwned=1>click</a>",
    "javascript:window.pwned=1",
    "<style>*{display:none!important}</style>",
    "<form action=https://evil.example><input name=x autofocus onfocus=window.pwned=1></form>",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<base href=https://evil.example/>",
    "{{constructor.constructor('window.pwned=1')()}}",
    "${window.pwned=1}",
    "';window.pwned=1;//",
    "\\u003cscript\\u003ewindow.pwned=1\\u003c/script\\u003e",
    "&lt;script&gt;window.pwned=1&lt;/script&gt;",
    "<template><script>window.pwned=1</script></template>",
    "<math><mtext><table><mglyph><style><img src onerror=window.pwned=1>",
    "\u202eevil\u202c \u0000 \u2028 \u2029 \ufeff",
    'event: status\ndata: {"healthy":true}\n\n',
    "\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<script>window.pwned=1</script>",
    "__proto__",
    "constructor",
    "<b style=position:fixed;inset:0;background:red>",
)


def hostile_texts() -> list[str]:
    """Return ``HOSTILE`` texts that would be executed by a page that parsed them as markup."""
    return [
        f"{_PIECES[n % len(_PIECES)]}{'<' * (n % 7)}{_PIECES[(7 * n + 3) % len(_PIECES)]}{n}"
        for n in range(HOSTILE)
    ]


async def _run(folder: Path) -> None:
    manifest = manifest_of(NANO_TASKS.suite(), epoch_seconds=36_000)
    home, hub = Home(folder, 1, manifest, Path("bundled")), MemoryHub()
    home.settings = resolve(environment={}).settings
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_run_node, home, hub, nursery.cancel_scope)
        await until(home.data.control_address.exists, START_SECONDS)
        stranger = MemoryTransport(hub, "stranger", on_bug=_raise)
        await nursery.start(stranger.run)
        await stranger.connect(home.address)
        await _share(stranger, manifest)
        await until(lambda: len(home.events("admitted")) >= ROLLOUTS, START_SECONDS)
        await until(lambda: len(home.events("refused")) >= 2, START_SECONDS)
        await until(partial(_has_own_curve, home.data.history), START_SECONDS)
        print(READY, flush=True)


async def _run_node(home: Home, hub: MemoryHub, whole: trio.CancelScope) -> None:
    """Run the node; end the attacker with it, which would run forever."""
    await home.node(hub).run()
    whole.cancel()


def _has_own_curve(path: Path) -> bool:
    history = open_history(path)
    try:
        return "own" in history.figures()
    finally:
        history.close()


async def _share(stranger: MemoryTransport, manifest: Manifest) -> None:
    now, texts = int(time.time()), [text.encode() for text in hostile_texts()]
    certificate = STRANGER.certificate(manifest, now - 60, now + 86_000)
    await stranger.publish(certificates_topic(manifest.swarm_id), certificate.to_bytes())
    await trio.sleep(1)  # the certificate must arrive before what it vouches for
    for slot in range(ROLLOUTS):
        answers = tuple(texts[slot * COMPLETIONS : (slot + 1) * COMPLETIONS])
        message = STRANGER.message(manifest, epoch=0, slot=slot, completions=answers)
        await stranger.publish(rollouts_topic(manifest.swarm_id), message)
        if slot % AT_ONCE == 0:
            await trio.sleep(0.05)
    forged = bytearray(STRANGER.message(manifest, epoch=0, slot=ROLLOUTS, completions=answers))
    forged[-1] ^= 1
    for refused in (texts[0], bytes(forged)):
        await stranger.publish(rollouts_topic(manifest.swarm_id), refused)


def _raise(error: Exception) -> None:
    raise error


if __name__ == "__main__":
    print(json.dumps({"texts": HOSTILE}), flush=True)
    trio.run(_run, Path(sys.argv[1]))
