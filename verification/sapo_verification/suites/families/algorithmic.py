"""Families of ReasoningGYM's ``algorithmic`` category: strings, lists, matrices, small searches."""

from collections.abc import Mapping
from typing import Final

from sapo_verification.suites.families.kinds import FamilySpec, Level

ALGORITHMIC: Final[Mapping[str, FamilySpec]] = {
    "ab": FamilySpec("exact/1", full=Level({"length": 10}, 32), easy=Level({"length": 4}, 16)),
    "binary_alternation": FamilySpec(
        "exact/1", full=Level({"min_n": 10, "max_n": 30}, 16), easy=Level({"min_n": 8, "max_n": 14}, 16)
    ),
    "caesar_cipher": FamilySpec(
        "exact/1",
        full=Level({"min_words": 3, "max_words": 20}, 256),
        easy=Level({"min_words": 3, "max_words": 4, "max_rotation": 5}, 64),
    ),
    "count_primes": FamilySpec("exact/1", full=Level({"max_n": 10000}, 16), easy=Level({"max_n": 60}, 16)),
    "cryptarithm": FamilySpec(
        "cryptarithm/1", full=Level({"max_words": 3}, 64), easy=Level({"max_words": 2}, 64)
    ),
    "game_of_life": FamilySpec(
        "list/1",
        full=Level({"filled_cells_weights": 0.3}, 256),
        easy=Level({"grid_size_x": 4, "grid_size_y": 4, "filled_cells_weights": 0.3}, 64),
    ),
    # at the default's 0.1 a fixed colouring is right on a quarter of the items
    "graph_color": FamilySpec("stock/1", full=Level({"edge_probability": 0.25}, 128)),
    "group_anagrams": FamilySpec(
        "stock/1",
        full=Level({"max_anagram_groups": 10}, 1024),
        easy=Level({"min_anagram_groups": 2, "max_anagram_groups": 2, "max_words_per_group": 2}, 128),
    ),
    "jugs": FamilySpec("stock/1", full=Level({"difficulty": 10}, 512), easy=Level({"difficulty": 3}, 128)),
    # longer texts than the default's, in which the letter occurs once on a third of the items
    "letter_counting": FamilySpec(
        "exact/1",
        full=Level({"min_words": 10, "max_words": 30}, 16),
        easy=Level({"min_words": 8, "max_words": 12}, 16),
    ),
    "letter_jumble": FamilySpec(
        "caseless/1",
        full=Level({"max_words": 20}, 512),
        easy=Level({"min_words": 1, "max_words": 2, "min_word_len": 3, "max_word_len": 5}, 16),
    ),
    "manipulate_matrix": FamilySpec(
        "words/1", full=Level({}, 256), easy=Level({"max_rows": 3, "max_cols": 3, "max_transforms": 2}, 32)
    ),
    "number_filtering": FamilySpec(
        "list/1", full=Level({}, 128), easy=Level({"max_numbers": 4, "max_decimals": 0}, 32)
    ),
    "number_sorting": FamilySpec(
        "list/1", full=Level({}, 128), easy=Level({"max_numbers": 4, "max_decimals": 0}, 64)
    ),
    "palindrome_generation": FamilySpec(
        "palindrome/1", full=Level({}, 16), easy=Level({"max_length": 4}, 16)
    ),
    # fifteen letters have more partitions than an answer may list
    "palindrome_partitioning": FamilySpec(
        "stock/1",
        full=Level({"max_string_len": 10}, 1024),
        easy=Level({"min_string_len": 3, "max_string_len": 5}, 512),
    ),
    "pool_matrix": FamilySpec(
        "stock/1", full=Level({}, 512), easy=Level({"max_rows": 4, "max_cols": 4, "max_pool_size": 2}, 64)
    ),
    "rotate_matrix": FamilySpec(
        "words/1", full=Level({}, 256), easy=Level({"max_n": 3, "max_rotations": 3}, 32)
    ),
    "rotten_oranges": FamilySpec("exact/1", full=Level({}, 16), easy=Level({"min_n": 5, "max_n": 6}, 16)),
    "sentence_reordering": FamilySpec(
        "words/1", full=Level({}, 512), easy=Level({"max_words_in_sentence": 5}, 64)
    ),
    "spell_backward": FamilySpec("exact/1", full=Level({}, 16), easy=Level({"max_word_len": 4}, 16)),
    "spiral_matrix": FamilySpec("words/1", full=Level({}, 256), easy=Level({"max_n": 3}, 32)),
    "string_insertion": FamilySpec("exact/1", full=Level({}, 32), easy=Level({"max_string_length": 7}, 16)),
    "string_manipulation": FamilySpec(
        "exact/1", full=Level({}, 32), easy=Level({"max_string_length": 10, "min_num_rules": 6}, 16)
    ),
    "string_splitting": FamilySpec(
        "words/1", full=Level({"max_initial_machines": 5}, 16), easy=Level({"max_initial_machines": 3}, 16)
    ),
    "string_synthesis": FamilySpec(
        "words/1", full=Level({"max_initial_blocks": 5}, 32), easy=Level({"max_initial_blocks": 3}, 32)
    ),
    # the published ladder, not the question, differs with PYTHONHASHSEED
    "word_ladder": FamilySpec(
        "stock/1",
        full=Level({}, 128),
        easy=Level(
            {"min_word_length": 3, "max_word_length": 3, "min_chain_length": 3, "max_chain_length": 4}, 16
        ),
    ),
    "word_sequence_reversal": FamilySpec("exact/1", full=Level({}, 64), easy=Level({"max_words": 3}, 32)),
    "word_sorting": FamilySpec("exact/1", full=Level({}, 128), easy=Level({"max_words": 3}, 32)),
}
