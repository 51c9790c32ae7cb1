"""How a batch uses the rollouts of other accounts.

===============  ========================================================================================
name             what another account's verified rollout is used for
===============  ========================================================================================
``reinforce``    its text enters the policy gradient, right and wrong answers alike (the paper's)
``practise``     its task alone: the own policy answers it and trains on its own answers; no text is trained
``imitate``      its right answers enter as demonstrations, where the own policy fails; wrong ones never do
``hybrid``       ``practise`` for the drawn groups, ``imitate`` beside it
``rationalise``  its right answers are hints for own steps, which are trained without them; no text is trained
===============  ========================================================================================

Why wrong answers of others are a risk in the policy gradient: they cost their author nothing, and one in the
format of an honest answer lowers the probability of that format. With ``practise`` an author can choose only
a slot's task, and what the own policy learns from it does not depend on the author's text.
"""

from enum import StrEnum


class TextUse(StrEnum):
    """Uses of other accounts' verified rollouts."""

    REINFORCE = "reinforce"
    PRACTISE = "practise"
    IMITATE = "imitate"
    HYBRID = "hybrid"
    RATIONALISE = "rationalise"

    @property
    def reinforces(self) -> bool:
        """Whether drawn groups enter the policy gradient as text."""
        return self is TextUse.REINFORCE

    @property
    def practises(self) -> bool:
        """Whether the own policy answers the tasks of drawn groups."""
        return self in (TextUse.PRACTISE, TextUse.HYBRID)

    @property
    def imitates(self) -> bool:
        """Whether right answers of others become demonstrations."""
        return self in (TextUse.IMITATE, TextUse.HYBRID)

    @property
    def rationalises(self) -> bool:
        """Whether right answers of others are hints for own steps."""
        return self is TextUse.RATIONALISE

    @property
    def demonstrates(self) -> bool:
        """Whether right answers of others are collected."""
        return self.imitates or self.rationalises
