"""Tokenizers in files that need a package which is not installed."""

from pathlib import Path

import pytest
from support.model_folders import refusals
from support.policies import make_policy_folder

SENTENCEPIECE = b"\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02"
TIKTOKEN = b"IQ== 0\nIg== 1\n"


@pytest.mark.parametrize(
    ("file", "content", "package"),
    [
        ("tokenizer.model", SENTENCEPIECE, "sentencepiece"),
        ("tokenizer.model", TIKTOKEN, "tiktoken"),
        ("tiktoken.model", TIKTOKEN, "tiktoken"),
    ],
)
@pytest.mark.parametrize("with_settings", [True, False])
def test_the_hint_says_where_a_tokenizer_json_comes_from(
    tmp_path: Path, file: str, content: bytes, package: str, *, with_settings: bool
) -> None:
    folder = make_policy_folder(tmp_path / "model", "llama")
    (folder / "tokenizer.json").unlink()
    (folder / file).write_bytes(content)
    if not with_settings:
        (folder / "tokenizer_config.json").unlink()
    text = (
        f"cannot load the model {str(folder)!r}: it has no tokenizer.json, and its {file} cannot be read here"
    )
    hint = (
        "copy the model's tokenizer.json into the folder, or write one where transformers and"
        f" {package} are installed: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
    )
    assert refusals(folder) == [(text, hint)] * 2
