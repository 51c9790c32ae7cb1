"""Settings of a learner, as they follow from the configuration."""

from pathlib import Path

import pytest

from sapo_client.config import LearnerConfig
from sapo_client.errors import SapoError
from sapo_client.learner.remote.tinker_trainer import require_possible
from sapo_client.learner.settings import LearnerSettings
from sapo_client.node.runtime.backends import learner_settings


def settings(folder: Path, *, reinforces: bool, **configured: bool | str | int) -> LearnerSettings:
    config = LearnerConfig.model_validate(configured)
    return learner_settings(config, folder, max_new_tokens=8, seed=0, fresh=False, reinforces=reinforces)


@pytest.mark.parametrize(
    ("configured", "reinforces", "agreement"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"agreement": False}, True, False),
        ({"agreement": True}, False, False),
        ({"backend": "tinker"}, True, False),
    ],
)
def test_agreement_is_on_where_text_of_others_is_reinforced(
    tmp_path: Path, configured: dict[str, bool | str], reinforces: bool, agreement: bool
) -> None:
    assert settings(tmp_path, reinforces=reinforces, **configured).agreement is agreement


def test_agreement_with_a_tinker_server_is_refused(tmp_path: Path) -> None:
    require_possible(settings(tmp_path, reinforces=True, backend="tinker"))
    wanted = settings(tmp_path, reinforces=True, backend="tinker", agreement=True)
    with pytest.raises(SapoError, match=r"learner\.agreement cannot be used with learner\.backend = tinker"):
        require_possible(wanted)


@pytest.mark.parametrize(("configured", "held_back"), [({}, True), ({"comparison_tasks": 0}, False)])
def test_without_comparisons_no_candidate_is_held_back(
    tmp_path: Path, configured: dict[str, int], *, held_back: bool
) -> None:
    assert settings(tmp_path, reinforces=False, **configured).held_back is held_back
