"""Colours of Okabe and Ito, on dark and on light; and the terminal's own."""

from typing import Final

from textual.theme import Theme

DARK: Final = Theme(
    name="qrprof-dark",
    primary="#56B4E9",
    secondary="#0072B2",
    accent="#E69F00",
    warning="#E69F00",
    error="#D55E00",
    success="#56B4E9",
    foreground="#E6E6E6",
    background="#121212",
    surface="#1B1B1B",
    panel="#262626",
    dark=True,
)
LIGHT: Final = Theme(
    name="qrprof-light",
    primary="#0072B2",
    secondary="#0072B2",
    accent="#B34700",
    warning="#B34700",
    error="#B34700",
    success="#0072B2",
    foreground="#1B1B1B",
    background="#FFFFFF",
    surface="#F4F4F4",
    panel="#E6E6E6",
    dark=False,
)
OWN: Final = (DARK, LIGHT)
CYCLE: Final = (DARK.name, LIGHT.name, "ansi-dark", "ansi-light")


def following(theme: str) -> str:
    """The theme after this one; the first after one that is not in the cycle."""
    return CYCLE[(CYCLE.index(theme) + 1) % len(CYCLE)] if theme in CYCLE else CYCLE[0]
