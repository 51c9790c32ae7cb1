"""Confidence intervals of means."""

from typing import Final

NORMAL_975: Final = 1.96
"""97.5 % quantile of the normal distribution."""

_T_975: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
)  # fmt: skip
"""The same of Student's t distribution for 1 to 20 degrees of freedom."""


def t_975(count: int) -> float:
    """Return Student's t at 97.5 % for the mean of ``count`` values, at least two."""
    return _T_975[count - 2] if count - 2 < len(_T_975) else NORMAL_975
