"""A chat template in ``chat_template.json`` alone, as older multimodal folders have it."""

import json
from pathlib import Path

import pytest
from support.model_folders import change_json, doctored, refusals
from support.policies import make_policy_folder
from transformers import AutoTokenizer

from sapo_client.errors import SapoError
from sapo_client.learner.loading.prompts import PromptForm
from sapo_client.learner.loading.reading import load_tokenizer
from sapo_client.learner.loading.tokenizers import has_chat_template
from sapo_client.learner.policy import load_policy

OLD = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}<answer>"
OWN = "{% for m in messages %}[{{ m['content'] }}]{% endfor %}"


def folder_with(folder: Path, content: object, *, own: str | None = None) -> Path:
    make_policy_folder(folder, "llama")
    (folder / "chat_template.json").write_text(json.dumps(content))
    if own is not None:
        (folder / "chat_template.jinja").write_text(own)
    return folder


def prompt_of(folder: Path) -> tuple[PromptForm, str]:
    policy = load_policy(str(folder), "cpu")
    return policy.form, policy.decode(policy.encode_prompt("6/8\n"))


@pytest.mark.parametrize(
    "content", [{"chat_template": OLD}, {"chat_template": [{"name": "default", "template": OLD}]}]
)
def test_the_template_of_chat_template_json_is_used(tmp_path: Path, content: object) -> None:
    folder = folder_with(tmp_path / "model", content)
    assert prompt_of(folder) == (PromptForm.USER, "<user>6/8\n<answer>")
    assert [(each.name, each.state) for each in doctored(folder)] == [("model", "ok"), ("memory", "ok")]
    assert load_tokenizer(str(folder)).chat_template == OLD


def test_the_tokenizers_own_template_goes_first(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "model", {"chat_template": OLD}, own=OWN)
    assert prompt_of(folder) == (PromptForm.USER, "[6/8\n]")


def test_an_exported_policy_has_the_template_where_transformers_reads_it(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "model", {"chat_template": OLD})
    load_policy(str(folder), "cpu").save(tmp_path / "exported")
    assert AutoTokenizer.from_pretrained(tmp_path / "exported").chat_template == OLD


@pytest.mark.parametrize("content", [{}, [], {"chat_template": 7}, {"chat_template": [{"name": "default"}]}])
def test_a_chat_template_json_without_a_template_is_refused_by_doctor_and_learner(
    tmp_path: Path, content: object
) -> None:
    folder = folder_with(tmp_path / "model", content)
    text = f"the chat_template.json of {str(folder)!r} holds no chat template"
    hint = "copy the model's folder again, or remove the file; without one the model gets the bare task"
    assert refusals(folder) == [(text, hint)] * 2


@pytest.mark.parametrize(("own", "has"), [(None, False), (OLD, True)])
def test_a_null_chat_template_counts_as_none(tmp_path: Path, own: str | None, *, has: bool) -> None:
    """Some programs write ``"chat_template": null``."""
    folder = make_policy_folder(tmp_path / "model", "llama")
    change_json(folder / "tokenizer_config.json", chat_template=own)
    assert (has_chat_template(str(folder)), "without chat template" in doctored(folder)[0].detail) == (
        has,
        not has,
    )


def test_an_unreadable_tokenizer_is_reported_in_one_line(tmp_path: Path) -> None:
    folder = make_policy_folder(tmp_path / "model", "llama")
    (folder / "tokenizer.json").write_text("[]")
    with pytest.raises(SapoError, match="cannot load the tokenizer"):
        load_tokenizer(str(folder))
