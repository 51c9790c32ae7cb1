"""Chat templates that refuse a conversation or leave the task out."""

from pathlib import Path

import pytest
from support.policies import make_policy_folder

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.loading.prompts import PromptForm
from sapo_client.learner.policy import load_policy
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings

LOOP = "{% for m in messages %}"
REST = "<{{ m['role'] }}>{{ m['content'] }}{% endfor %}<answer>"
PLAIN = LOOP + REST
NEEDS_SYSTEM = (
    "{% if messages[0]['role'] != 'system' %}{{ raise_exception('a system message first') }}{% endif %}"
    + PLAIN
)
PARTS_ONLY = LOOP + "<{{ m['role'] }}>{% for p in m['content'] %}{{ p.text }}{% endfor %}{% endfor %}<answer>"
REASONS = PLAIN + "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
TRIMS = LOOP + "<{{ m['role'] }}>{{ m['content'] | trim }}{% endfor %}<answer>"
LEAVES_OUT = LOOP + "<{{ m['role'] }}>{{ m['text'] }}{% endfor %}<answer>"
RAISES = "{{ raise_exception('not for\nyou') }}"
BROKEN = "{% for m in messages %}"
ADDS = "{{ messages[0]['content'] + 1 }}"
CALLS_ITSELF = "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(messages[0]['content']) }}"
NESTED = "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}"
ENORMOUS = "{{ messages[0]['content'] * 10 ** 16 }}"


def folder_with(tmp_path: Path, template: str | None) -> Path:
    folder = make_policy_folder(tmp_path / "model", "gpt2")
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return folder


@pytest.mark.parametrize(
    ("template", "form", "prompt"),
    [
        (None, PromptForm.BARE, "6/8\n"),
        (PLAIN, PromptForm.USER, "<user>6/8\n<answer>"),
        (REASONS, PromptForm.USER, "<user>6/8\n<answer><think></think>"),
        (TRIMS, PromptForm.USER, "<user>6/8<answer>"),
        (PARTS_ONLY, PromptForm.PARTS, "<user>6/8\n<answer>"),
        (NEEDS_SYSTEM, PromptForm.AFTER_SYSTEM, "<system><user>6/8\n<answer>"),
    ],
)
def test_the_first_form_that_a_template_takes_is_used(
    tmp_path: Path, template: str | None, form: PromptForm, prompt: str
) -> None:
    folder = folder_with(tmp_path, template)
    policy = load_policy(str(folder), "cpu")
    assert (policy.form, policy.decode(policy.encode_prompt("6/8\n"))) == (form, prompt)
    settings = LearnerSettings(str(folder), tmp_path / "run", max_new_tokens=8)
    assert Service(settings).about()["notice"] == form.notice
    assert bool(form.notice) is (form in (PromptForm.PARTS, PromptForm.AFTER_SYSTEM))


CALLS_ITSELF_FOR_SEVENS = (
    "{% macro f(x) %}{{ f(x) }}{% endmacro %}"
    "{% if '1 + 7' in messages[0]['content'] %}{{ f(1) }}{% endif %}" + PLAIN
)
SEVENS = "{% if '1 + 7' in messages[0]['content'] %}{{ raise_exception('no sevens') }}{% endif %}" + PLAIN
TAKEN, RAISED = "1 + 2 =\n", "1 + 7 =\n"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (SEVENS, "raises TemplateError: no sevens"),
        (CALLS_ITSELF_FOR_SEVENS, "raises RecursionError: maximum recursion depth exceeded"),
    ],
)
def test_texts_for_which_a_template_raises_are_left_out_and_counted(
    tmp_path: Path, template: str, reason: str
) -> None:
    folder = folder_with(tmp_path, template)
    service = Service(LearnerSettings(str(folder), tmp_path / "run", device="cpu", max_new_tokens=8))
    asked = {"prompts": [RAISED, TAKEN], "completions_per_prompt": 2, "handles": [1, 2]}
    sampled = service.call("generate", asked)
    assert [len(group) for group in sampled["completions"]] == [0, 2]
    [(place, (kind, told))] = sampled["refusals"].items()
    assert (place, kind, told[: 26 + len(reason)]) == (0, "template", f"the model's chat template {reason}")
    assert service.call("evaluate", {"prompts": [RAISED]})["completions"] == [b""]
    shown = {"family": 0, "author": b"7" * 7, "completion": b"19", "answer": b"19"}
    answered = {"completions": [b"3", b"4"], "rewards": [1.0, 0.0], "external": True, "handle": None}
    report = service.call(
        "train",
        {
            "groups": [{**answered, "prompt": RAISED}, {**answered, "prompt": TAKEN}],
            "demonstrations": [{**shown, "prompt": RAISED}, {**shown, "prompt": TAKEN}],
        },
    )
    counted = ("external_groups", "too_long", "template_raised", "tokens", "demonstrations_held")
    assert [report[name] for name in counted] == [2, 0, 1, 4, 1]
    assert len(report["external_weights"]) == 2


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (LEAVES_OUT, "leaves the task's text out"),
        (RAISES, "raises TemplateError: not for"),
        (BROKEN, "raises TemplateSyntaxError: Unexpected end of template."),
        (ADDS, 'raises TypeError: can only concatenate str (not "int") to str'),
        (CALLS_ITSELF, "raises RecursionError: maximum recursion depth exceeded"),
        (NESTED, "raises RecursionError: maximum recursion depth exceeded"),
        (ENORMOUS, "raises MemoryError: no reason"),
    ],
)
def test_a_template_that_never_shows_the_task_is_refused(tmp_path: Path, template: str, reason: str) -> None:
    folder = folder_with(tmp_path, template)
    with pytest.raises(SapoError) as caught:
        load_policy(str(folder), "cpu")
    text = f"the chat template of {str(folder)!r} cannot be used: with a user's message it {reason}"
    assert caught.value.text[: len(text)] == text
    assert "\n" not in caught.value.text
    assert caught.value.hint.endswith("without one the model gets the bare task")
    assert caught.value.exit_code == ExitCode.CONFIG
