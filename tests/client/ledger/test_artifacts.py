"""The committed artifacts are what the committed sources compile to."""

import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from sapo_client.ledger.artifact import CONTRACTS, EARLIER, load

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "contracts" / "src"
SHIPPED = ROOT / "client" / "sapo_client" / "ledger" / "artifacts"


@pytest.mark.parametrize("name", CONTRACTS)
def test_an_artifact_was_compiled_from_the_present_sources(name: str) -> None:
    here = {f"src/{path.name}": sha256(path.read_bytes()).hexdigest() for path in SOURCES.glob("*.sol")}
    recorded = {path: digest for path, digest in load(name).sources.items() if path.startswith("src/")}
    assert recorded == here


def test_every_artifact_is_known_by_name() -> None:
    assert sorted(path.stem for path in SHIPPED.glob("*.json")) == sorted(CONTRACTS)


def test_compiling_again_gives_the_same_bytes(tmp_path: Path) -> None:
    if not (ROOT / "contracts" / "node_modules" / "solc").exists():
        pytest.skip("the Solidity compiler is not installed: `make contracts` needs Node.js and npm")
    subprocess.run(["node", "build.mjs", str(tmp_path)], cwd=ROOT / "contracts", check=True, timeout=300)
    compiled = {path.name: path.read_bytes() for path in tmp_path.glob("*.json")}
    assert compiled == {path.name: path.read_bytes() for path in SHIPPED.glob("*.json")}


def test_every_earlier_version_is_kept_and_differs_from_the_current_one() -> None:
    folders = {path.name for path in SHIPPED.iterdir() if path.is_dir()}
    assert folders == {f"v{version}" for versions in EARLIER.values() for version in versions}
    for name, versions in EARLIER.items():
        for version in versions:
            assert not load(name).is_code(load(name, version).deployed)


@pytest.mark.parametrize("name", CONTRACTS)
def test_code_is_recognised_with_any_values_of_its_immutables(name: str) -> None:
    artifact = load(name)
    filled = bytearray(artifact.deployed)
    for start, length in artifact.immutable_spans:
        filled[start : start + length] = b"\xff" * length
    assert artifact.is_code(bytes(filled))
    untouched = set(range(len(filled))) - {
        place for start, length in artifact.immutable_spans for place in range(start, start + length)
    }
    filled[min(untouched)] ^= 1
    assert not artifact.is_code(bytes(filled))
    assert not artifact.is_code(b"")


def test_the_lock_file_contains_no_download_addresses() -> None:
    assert '"resolved"' not in (ROOT / "contracts" / "package-lock.json").read_text()
