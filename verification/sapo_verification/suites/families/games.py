"""Families of ReasoningGYM's ``games`` category: boards, cards, target numbers."""

from collections.abc import Mapping
from typing import Final

from sapo_verification.suites.families.kinds import FamilySpec, Level

GAMES: Final[Mapping[str, FamilySpec]] = {
    "countdown": FamilySpec(
        "expression/1",
        full=Level({}, 32),
        easy=Level(
            {"min_numbers": 3, "max_numbers": 3, "max_value": 10, "min_target": 10, "max_target": 60}, 16
        ),
    ),
    "emoji_mystery": FamilySpec("words/1", full=Level({}, 512), easy=Level({"max_words_in_sentence": 5}, 64)),
    # a board of nine by nine takes the generator up to 8 s
    "futoshiki": FamilySpec(
        "words/1",
        full=Level({"max_board_size": 5}, 256),
        easy=Level({"max_board_size": 4, "max_difficulty": 0}, 128),
    ),
    "kakurasu": FamilySpec("kakurasu/1", full=Level({}, 64)),
    "mahjong_puzzle": FamilySpec(
        "exact/1", full=Level({}, 16), easy=Level({"min_num_rounds": 2, "max_num_rounds": 4}, 16)
    ),
    "maze": FamilySpec("exact/1", full=Level({}, 16)),
    "mini_sudoku": FamilySpec(
        "words/1", full=Level({}, 32), easy=Level({"min_empty": 4, "max_empty": 6}, 32)
    ),
    "n_queens": FamilySpec("queens/1", full=Level({}, 128), easy=Level({"max_remove": 2}, 128)),
    "puzzle24": FamilySpec("expression/1", full=Level({}, 16)),
    # the boards that need more than 12 moves are left out, so that an honest solution is soon found
    "rush_hour": FamilySpec(
        "rush-hour/1", full=Level({"max_moves": 12}, 128), easy=Level({"max_moves": 5}, 32)
    ),
    # the default's ten boxes take the generator up to 0.5 s
    "sokoban": FamilySpec(
        "sokoban/1", full=Level({"max_w": 7, "max_h": 7, "min_boxes": 2, "max_boxes": 4}, 128)
    ),
    "sudoku": FamilySpec("words/1", full=Level({}, 256), easy=Level({"min_empty": 5, "max_empty": 10}, 256)),
    "survo": FamilySpec(
        "survo/1", full=Level({}, 64), easy=Level({"min_empty": 3, "max_empty": 3, "max_board_size": 4}, 64)
    ),
    # seven disks need more text than an answer may have
    "tower_of_hanoi": FamilySpec(
        "stock/1", full=Level({"max_disks": 4}, 512), easy=Level({"max_disks": 3, "max_pegs": 3}, 256)
    ),
    "tsumego": FamilySpec("exact/1", full=Level({}, 16)),
}
