"""Folders that are refused at loading, each with an error that states what to do."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.model_folders import change_json, change_weights, doctored
from support.policies import make_policy_folder
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertLMHeadModel,
    FalconConfig,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    ModernBertConfig,
    MptConfig,
    RobertaConfig,
    RobertaForCausalLM,
    T5Config,
)

from sapo_client.cli.checks import Check
from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.adapters import save_adapters
from sapo_client.learner.policy import load_policy
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.sizing.precision import BaseName
from sapo_client.learner.sizing.skeleton import make_skeleton, shape_of

GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
FOUR_BITS = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}


def refusal(folder: Path, base: BaseName = "float32") -> tuple[str, str, int]:
    with pytest.raises(SapoError) as caught:
        load_policy(str(folder), "cpu", base=base)
    return caught.value.text, caught.value.hint, caught.value.exit_code


def skeleton_refusal(folder: Path) -> tuple[str, str, int]:
    with pytest.raises(SapoError) as caught:
        make_skeleton(str(folder))
    return caught.value.text, caught.value.hint, caught.value.exit_code


@pytest.mark.parametrize("base", ["float32", "bfloat16"])
def test_weights_that_a_folder_lacks_are_refused(tmp_path: Path, base: BaseName) -> None:
    folder = make_policy_folder(tmp_path, "llama")
    change_weights(folder, lambda all_: {name: each for name, each in all_.items() if "lm_head" not in name})
    assert refusal(folder, base) == (
        f"the model {str(folder)!r} lacks weights: lm_head.weight",
        "set tie_word_embeddings = true in its config.json if its head is its embedding; else copy the folder"
        " again, for it would be random",
        ExitCode.CONFIG,
    )


def test_weights_with_other_names_are_refused(tmp_path: Path) -> None:
    folder = make_policy_folder(tmp_path, "gpt2")
    change_weights(folder, lambda all_: {f"_orig_mod.{name}": each for name, each in all_.items()})
    text, _, _ = refusal(folder)
    assert text == (
        f"the model {str(folder)!r} lacks weights: lm_head.weight,"
        " transformer.h.0.attn.c_attn.bias, transformer.h.0.attn.c_attn.weight and 26 more"
    )


@pytest.mark.parametrize("kind", ["qwen2", "llama", "gpt2", "opt", "olmoe", "mamba"])
def test_complete_folders_are_loaded_with_all_weights(tmp_path: Path, kind: str) -> None:
    """Tied weights are in the file once, and are not missed."""
    folder = make_policy_folder(tmp_path, kind)
    kept = load_file(folder / "model.safetensors")
    loaded = load_policy(str(folder), "cpu").model.state_dict()
    assert {name: torch.equal(loaded[name], each) for name, each in kept.items() if name in loaded} == {
        name: True for name in kept if name in loaded
    }


@pytest.mark.parametrize("room", [0, 8])
def test_an_end_token_outside_the_vocabulary_is_refused(tmp_path: Path, room: int) -> None:
    """Transformers would add it as a new token, which the model never learned."""
    folder = make_policy_folder(tmp_path, "llama")
    change_json(folder / "tokenizer_config.json", eos_token="<|nowhere|>")
    if room:
        file = folder / "config.json"
        vocabulary = json.loads(file.read_text())["vocab_size"] + room
        change_json(file, vocab_size=vocabulary)
        grown = ("lm_head.weight", "model.embed_tokens.weight")
        change_weights(
            folder,
            lambda all_: {
                name: torch.cat([each, each[:room]]) if name in grown else each for name, each in all_.items()
            },
        )
    assert refusal(folder) == (
        f"the end token '<|nowhere|>' of {str(folder)!r} is not in the vocabulary of its tokenizer",
        "set eos_token in its tokenizer_config.json to the token that ends the model's answers",
        ExitCode.CONFIG,
    )


def test_weights_of_other_sizes_are_refused(tmp_path: Path) -> None:
    folder = make_policy_folder(tmp_path, "llama")
    change_json(folder / "config.json", intermediate_size=96)
    text, hint, code = refusal(folder)
    assert text == (
        f"the model {str(folder)!r} has weights of other sizes than its config.json says:"
        " model.layers.0.mlp.down_proj.weight is 48 x 64 and not 48 x 96,"
        " model.layers.0.mlp.gate_proj.bias is 64 and not 96,"
        " model.layers.0.mlp.gate_proj.weight is 64 x 48 and not 96 x 48 and 7 more"
    )
    assert hint == "config.json and the files of weights must be of one model; copy the folder again"
    assert code == ExitCode.CONFIG


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:aaaa\nsize 988097824\n"


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
def test_pointers_of_git_lfs_are_refused(tmp_path: Path, file: str) -> None:
    folder = make_policy_folder(tmp_path)
    (folder / "model.safetensors").unlink()
    (folder / file).write_bytes(POINTER)
    assert refusal(folder) == (
        f"cannot load the model {str(folder)!r}: {file} is a pointer of git-lfs, not the file itself",
        "fetch the files themselves: git lfs pull, in the folder's repository",
        ExitCode.CONFIG,
    )


@pytest.mark.parametrize("content", [b"", b"no weights", b"PK\x03\x04 cut short"])
def test_damaged_weights_of_pytorch_are_refused(tmp_path: Path, content: bytes) -> None:
    folder = make_policy_folder(tmp_path)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(content)
    text, _, code = refusal(folder)
    assert text.startswith(f"cannot load the model {str(folder)!r}: ")
    assert code == ExitCode.CONFIG


def test_a_missing_package_for_quantised_weights_is_refused(tmp_path: Path) -> None:
    folder = make_policy_folder(tmp_path)
    change_json(folder / "config.json", quantization_config=GPTQ)
    text, hint, code = refusal(folder)
    assert text.startswith(f"cannot load the model {str(folder)!r}: ")
    assert "optimum" in text
    assert hint == "its weights are quantised by 'gptq': install what that needs, or take a model in floats"
    assert code == ExitCode.CONFIG


def test_a_broken_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = make_policy_folder(tmp_path)
    (folder / "tokenizer.json").write_text("{}")
    text, _, code = refusal(folder)
    assert text.startswith(f"cannot load the model {str(folder)!r}: ")
    assert code == ExitCode.CONFIG


SIZES: dict[str, Any] = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}


def vocabulary_of(folder: Path) -> dict[str, int]:
    """Return the size of a model's vocabulary, as a configuration's argument."""
    return {"vocab_size": json.loads((folder / "config.json").read_text())["vocab_size"]}


ENCODERS: dict[str, tuple[Any, type[Any]]] = {
    "BertLMHeadModel": (BertConfig, BertLMHeadModel),
    "RobertaForCausalLM": (RobertaConfig, RobertaForCausalLM),
}


@pytest.mark.parametrize("kind", ENCODERS)
def test_an_encoder_is_refused(tmp_path: Path, kind: str) -> None:
    """Transformers loads it as a language model, although every token sees those after it."""
    folder = make_policy_folder(tmp_path)
    settings, model = ENCODERS[kind]
    model(settings(**SIZES, **vocabulary_of(folder))).save_pretrained(folder)
    text, hint, code = refusal(folder)
    assert (text, hint, code) == (
        f"the model {str(folder)!r} ({kind}) is not causal: a later token changes the predictions before it,"
        " as in encoders such as BERT",
        "take a causal (decoder) language model, as Qwen/Qwen2.5-0.5B-Instruct",
        ExitCode.CONFIG,
    )
    assert doctored(folder) == [Check("model", "fail", text, hint)]


CAUSAL: dict[str, tuple[Any, dict[str, int]]] = {
    "bert as a decoder": (BertConfig, {"is_decoder": True}),
    "gemma3": (Gemma3TextConfig, {"head_dim": 12}),
    "mpt": (MptConfig, {"d_model": 48, "n_heads": 4, "n_layers": 2}),
    "falcon": (FalconConfig, {}),
}


@pytest.mark.parametrize("kind", CAUSAL)
def test_a_decoder_passes_the_doctor(tmp_path: Path, kind: str) -> None:
    folder = make_policy_folder(tmp_path)
    settings, changes = CAUSAL[kind]
    ids = {"eos_token_id": 1, "bos_token_id": None, "pad_token_id": 0}
    config = settings(**SIZES | ids | vocabulary_of(folder) | changes)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    assert [(each.name, each.state) for each in doctored(folder)] == [("model", "warn"), ("memory", "ok")]
    assert load_policy(str(folder), "cpu").source == str(folder)


@pytest.mark.parametrize("auto", ["AutoConfig", "AutoModelForCausalLM"])
def test_code_of_a_folder_is_never_run_and_needs_no_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, auto: str
) -> None:
    monkeypatch.setattr("builtins.input", lambda _: "y")
    folder = make_policy_folder(tmp_path)
    ran = tmp_path / "ran"
    (folder / "own.py").write_text(f"open({str(ran)!r}, 'w').close()\n")
    change_json(folder / "config.json", model_type="own-kind", auto_map={auto: "own.Thing"})
    if auto == "AutoModelForCausalLM":  # known, and not as a causal language model
        change_json(folder / "config.json", model_type="vit")
    expected = (
        f"the model {str(folder)!r} needs code of its own (auto_map in its files), which is never run here",
        "take a model whose architecture transformers has; newer releases of transformers have more",
        ExitCode.CONFIG,
    )
    assert (refusal(folder), skeleton_refusal(folder)) == (expected, expected)
    assert not ran.exists()


def test_an_adapter_alone_is_refused(tmp_path: Path) -> None:
    """Transformers would load the base that it names."""
    base = make_policy_folder(tmp_path / "base")
    adapted = load_policy(str(base), "cpu").with_adapters(4)
    folder = tmp_path / "adapter"
    save_adapters(adapted.model, folder)
    adapted.tokenizer.save_pretrained(folder)
    expected = (
        f"{str(folder)!r} is an adapter (it has an adapter_config.json), not a whole model",
        "merge the adapter into its base first: peft's merge_and_unload(), then save_pretrained();"
        " if the weights are merged already, remove adapter_config.json",
        ExitCode.CONFIG,
    )
    assert (refusal(folder), skeleton_refusal(folder)) == (expected, expected)


@pytest.mark.parametrize(("kind", "settings"), [("t5", T5Config), ("modernbert", ModernBertConfig)])
def test_an_architecture_without_a_causal_model_is_refused(tmp_path: Path, kind: str, settings: Any) -> None:
    folder = make_policy_folder(tmp_path)
    settings(vocab_size=300).save_pretrained(folder)
    expected = (
        f"the model {str(folder)!r} is of the kind {kind!r}, which is no causal language model in"
        " transformers",
        "take a causal (decoder) language model, as Qwen/Qwen2.5-0.5B-Instruct",
        ExitCode.CONFIG,
    )
    assert (refusal(folder), skeleton_refusal(folder)) == (expected, expected)


@pytest.mark.parametrize("quantised", [GPTQ, FOUR_BITS])
def test_quantised_weights_are_refused_without_adapters(tmp_path: Path, quantised: dict[str, Any]) -> None:
    """Embeddings and norms alone would be trained."""
    folder = make_policy_folder(tmp_path / "model", "llama")
    change_json(folder / "config.json", quantization_config=quantised)
    with pytest.raises(SapoError) as caught:
        Service(LearnerSettings(str(folder), tmp_path / "run", device="cpu"))
    expected = Check(
        "model",
        "fail",
        f"the weights of {str(folder)!r} are quantised, and training cannot change such",
        "set learner.lora_rank = 16 to train adapters on them, or take the model in floats",
    )
    assert (caught.value.text, caught.value.hint) == (expected.detail, expected.hint)
    assert doctored(folder) == [expected]


def cut_short(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def point_to_lfs(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(POINTER)


def remove_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def leave_the_task_out(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ messages[0]['text'] }}")


DAMAGE: dict[str, Callable[[Path], None]] = {
    "other sizes": lambda folder: change_json(folder / "config.json", intermediate_size=96),
    "missing": lambda folder: change_weights(
        folder, lambda all_: {name: each for name, each in all_.items() if "lm_head" not in name}
    ),
    "cut short": cut_short,
    "pointer": point_to_lfs,
    "no weights": remove_weights,
    "tokenizer": lambda folder: change_json(folder / "tokenizer.json", model=None),
    "end": lambda folder: change_json(folder / "tokenizer_config.json", eos_token="<|nowhere|>"),
    "template": leave_the_task_out,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_doctor_refuses_what_the_learner_refuses(tmp_path: Path, damage: str) -> None:
    folder = make_policy_folder(tmp_path / "model", "llama")
    assert [each.state for each in doctored(folder)] == ["warn", "ok"]
    DAMAGE[damage](folder)
    text, _, _ = refusal(folder)
    [found] = doctored(folder)
    assert (found.name, found.state, found.detail) == ("model", "fail", text)
    assert found.hint


def spoil(folder: Path) -> None:
    change_weights(folder, lambda all_: {name: each * float("nan") for name, each in all_.items()})


def shard(folder: Path) -> None:
    AutoModelForCausalLM.from_pretrained(folder).save_pretrained(folder, max_shard_size="40KB")
    (folder / "model.safetensors").unlink()


def lose_a_part(folder: Path) -> None:
    shard(folder)
    sorted(folder.glob("model-*"))[1].unlink()


def lose_the_index(folder: Path) -> None:
    shard(folder)
    (folder / "model.safetensors.index.json").unlink()


def lose(*names: str) -> Callable[[Path], None]:
    def remove(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return remove


def damage(name: str) -> Callable[[Path], None]:
    def cut(folder: Path) -> None:
        (folder / name).write_text("{")

    return cut


ANEW = "copy the folder again: it lacks a file of its weights, or their model.safetensors.index.json"
MISTAKES: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "no config": (lose("config.json"), "the folder {} has no config.json", "give the folder that has"),
    "damaged config": (
        damage("config.json"),
        "the config.json of {} is no valid JSON: Expecting",
        "copy the model's folder again",
    ),
    "data type": (
        lambda folder: change_json(folder / "config.json", dtype="float17"),
        "the config.json of {} names the data type 'float17', which cannot be trained",
        "set dtype in it to one of float32, bfloat16",
    ),
    "heads": (
        lambda folder: change_json(folder / "config.json", num_attention_heads=5),
        "the config.json of {} contradicts itself: ValueError: The hidden size (48) is not a multiple",
        "correct it",
    ),
    "new kind": (
        lambda folder: change_json(folder / "config.json", model_type="llama9"),
        "the model {} is of the kind 'llama9', which the installed transformers does not know",
        "pip install --upgrade transformers",
    ),
    "part of the weights": (lose_a_part, "cannot load the model {}: No such file or directory: ", ANEW),
    "index of the weights": (lose_the_index, "cannot load the model {}: Error no file named", ANEW),
    "vocabulary": (
        lose("tokenizer.json"),
        "the tokenizer of {} turns a text into no tokens: it has no vocabulary",
        "copy the tokenizer's files",
    ),
    "tokenizer": (
        lose("tokenizer.json", "tokenizer_config.json"),
        "cannot load the model {}: it has no tokenizer.json",
        "copy the tokenizer's files",
    ),
    "settings of the tokenizer": (
        damage("tokenizer_config.json"),
        "cannot load the model {}: tokenizer_config.json is no valid JSON: Expecting",
        "copy the folder again",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_folders_are_reported_in_one_line_by_doctor_and_learner(
    tmp_path: Path, mistake: str
) -> None:
    folder = make_policy_folder(tmp_path / "model", "llama")
    make, text, hint = MISTAKES[mistake]
    make(folder)
    [found] = doctored(folder)
    told = [(found.detail, found.hint)]
    with pytest.raises(SapoError) as caught:
        Service(LearnerSettings(str(folder), tmp_path / "run", device="cpu", max_new_tokens=8))
    told.append((caught.value.text, caught.value.hint))
    begins = text.format(repr(str(folder)))
    assert [(each[: len(begins)], of[: len(hint)]) for each, of in told] == [(begins, hint)] * 2, told
    assert "\n" not in found.detail


def test_weights_with_nan_are_refused(tmp_path: Path) -> None:
    """A step would be undone each time, and the node would go on without learning."""
    folder = make_policy_folder(tmp_path / "model", "llama")
    spoil(folder)
    text, hint, code = refusal(folder)
    assert text.startswith(f"the model {str(folder)!r} computes no numbers (NaN)")
    assert (hint.startswith("copy the folder again"), code) == (True, ExitCode.CONFIG)


def test_a_file_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    folder = make_policy_folder(tmp_path / "model", "llama")
    file = folder / "model.safetensors"
    text, hint, _ = skeleton_refusal(file)
    assert text == f"{str(file)!r} is a file, not a model's folder"
    assert hint.startswith("give the folder that has the model's config.json")


@pytest.mark.parametrize("damaged", [False, True])
def test_the_doctor_reports_packages_missing_for_quantised_weights(tmp_path: Path, damaged: bool) -> None:
    folder = make_policy_folder(tmp_path / "model", "llama")
    change_json(folder / "config.json", quantization_config=FOUR_BITS if damaged else GPTQ)
    if damaged:
        cut_short(folder)
    text, hint, _ = refusal(folder)
    [found] = doctored(folder, lora_rank=16)
    assert (found.name, found.state, found.detail) == ("model", "fail", text)
    assert damaged or found.hint == hint


def test_the_language_model_of_a_multimodal_folder_is_planned_sampled_and_trained(tmp_path: Path) -> None:
    folder = make_policy_folder(tmp_path / "model")
    plain = json.loads((folder / "config.json").read_text())
    ends = {name: plain[name] for name in ("vocab_size", "eos_token_id", "pad_token_id", "bos_token_id")}
    sizes = {"hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    text = {**sizes, "num_key_value_heads": 2, "head_dim": 12, "max_position_embeddings": 96, **ends}
    seen = {**sizes, "image_size": 16, "patch_size": 8}
    tokens = {"boi_token_index": 1, "eoi_token_index": 2, "image_token_index": 3, "mm_tokens_per_image": 1}
    config = Gemma3Config(text_config=text, vision_config=seen, **tokens)
    Gemma3ForConditionalGeneration(config).save_pretrained(folder)
    shape = shape_of(make_skeleton(str(folder)))
    assert (shape.kind, shape.layers, shape.hidden, shape.window) == ("gemma3", 2, 48, 96)
    assert [(each.name, each.state) for each in doctored(folder)] == [("model", "warn"), ("memory", "ok")]
    service = Service(LearnerSettings(str(folder), tmp_path / "run", device="cpu", max_new_tokens=6))
    assert service._policy.window == 96
    request = {"prompts": ["6/8\n"], "completions_per_prompt": 4, "handles": [1]}
    [completions] = service.call("generate", request)["completions"]
    group = {"prompt": "6/8\n", "completions": completions, "rewards": [1.0, 0.0, 0.0, 1.0], "handle": 1}
    report = service.call("train", {"groups": [{**group, "external": False}]})
    assert (report["rolled_back"], report["gradient_norm"] > 0.0) == (False, True)
    adapted = make_skeleton(str(folder), lora_rank=4)
    layers = {name.split(".lora_")[0] for name, each in adapted.named_parameters() if each.requires_grad}
    decoder = "base_model.model.model.language_model.layers"
    attention = [f"self_attn.{name}_proj" for name in "qkvo"]
    names = [*attention, *(f"mlp.{name}_proj" for name in ("gate", "up", "down"))]
    assert layers == {f"{decoder}.{index}.{name}" for index in range(2) for name in names}
