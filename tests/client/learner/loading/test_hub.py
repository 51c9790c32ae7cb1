"""Models by name on a hub: one request each, and an early error if the hub is not reachable."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.hub import NAME, Hub, open_hub
from support.policies import make_policy_folder

from sapo_client.learner.policy import load_policy

PLAN = f"""
from sapo_client.learner.sizing.skeleton import make_skeleton, quantisation_of
quantisation_of({NAME!r})
make_skeleton({NAME!r})
"""

LOAD = f"""
from sapo_client.learner.loading.files import model_folder
from sapo_client.learner.policy import load_policy
print(load_policy({NAME!r}, "cpu").source)
print(load_policy(str(model_folder({NAME!r})), "cpu").model.num_parameters())
"""

DOCTOR = f"""
import sys
from sapo_client.cli.entry import main
sys.argv = ["sapo", "doctor", "--model", {NAME!r}, "--data-dir", sys.argv[1]]
main()
"""


def run(program: str, folder: Path, hub: Hub) -> subprocess.CompletedProcess[str]:
    """Run a program whose hub this is, with its cache in a folder."""
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.address,
        "HF_HOME": str(folder / "cache"),
        "HF_HUB_OFFLINE": "0",
        "TRANSFORMERS_OFFLINE": "0",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "NO_PROXY": "127.0.0.1",
    }
    command = [sys.executable, "-c", program, str(folder / "data")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_an_unreachable_hub_is_requested_once(tmp_path: Path) -> None:
    with open_hub(None) as hub:
        done = run(DOCTOR, tmp_path, hub)
    assert f"model: asking {hub.address} for the small files of {NAME}\n" in done.stderr
    assert (
        f"the model {NAME!r} is neither a folder nor in the hub's cache here, and {hub.address}"
        in done.stdout
    )
    assert "model: connect to the hub, or give a folder with a config.json" in done.stderr
    assert dict(hub.asked) == {("HEAD", "/"): 1}
    assert done.returncode == 7


def test_a_model_of_the_hub_is_downloaded_once_and_later_loaded_from_the_cache(tmp_path: Path) -> None:
    folder = make_policy_folder(tmp_path / "model")
    loaded = f"{NAME}\n{load_policy(str(folder), 'cpu').model.num_parameters()}\n"
    with open_hub(folder) as hub:
        run(PLAN, tmp_path, hub)
        assert hub.asked["HEAD", "adapter_config.json"] == 1
        done = run(LOAD, tmp_path, hub)
    assert (done.returncode, done.stdout) == (0, loaded), done.stderr
    with open_hub(None) as away:
        done = run(LOAD, tmp_path, away)
    assert (done.returncode, done.stdout) == (0, loaded), done.stderr
    assert dict(away.asked) == {("HEAD", "/"): 1}


@pytest.mark.parametrize("status", [401, 403])
def test_a_gated_model_is_refused_with_what_to_accept(tmp_path: Path, status: int) -> None:
    """401 without a token, 403 for an account that has not accepted the terms."""
    with open_hub(tmp_path, (status, "GatedRepo")) as hub:
        done = run(DOCTOR, tmp_path, hub)
    assert f"the model {NAME!r} is gated: its owner requires users to accept terms first" in done.stdout
    assert f"model: accept them at https://huggingface.co/{NAME}, then log in: hf auth login" in done.stderr
    assert done.returncode == 7
