"""Texts of a trace on their way into its columns: printable, and without what looks like a secret.

Names come from the profiled program: an annotation or an NVTX range may hold a token or a connection
string. What looks like one is replaced at import, so that no cache, view or export can hold it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
MASK: Final = "[masked]"

# Tokens are known by their makers' prefixes; any other secret by the word before it.
SECRET: Final = re.compile(
    r"""
      (?<![A-Za-z0-9])(?:
          hf_[A-Za-z0-9]{16,}
        | (?:sk|pk|rk)-(?=[A-Za-z_-]{0,40}\d)[A-Za-z0-9_-]{16,}
        | gh[pousr]_[A-Za-z0-9]{16,} | github_pat_\w{16,} | glpat-[\w-]{16,}
        | xox[abeoprs]-[A-Za-z0-9-]{10,}
        | (?:AKIA|ASIA)[A-Z0-9]{16} | AIza[\w-]{30,} | ya29\.[\w-]{16,}
        | nvapi-[\w-]{16,} | dckr_pat_[\w-]{16,} | pypi-[\w-]{16,} | npm_[A-Za-z0-9]{30,}
        | eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?
      )
    | (?i:(?<=bearer\ ))(?=[A-Za-z_.-]{0,40}\d)[\w.~+/=-]{12,}
    | (?<=://)[^\s/:@]+:[^\s/@]+(?=@)
    | (?i:
          (?:api|access|auth|secret|private|account|signing)[_-]?(?:key|token) | client[_-]?secret
        | passw(?:or)?d | passphrase | authorization | credentials?
        | (?:token|secret)(?=\W{1,6}(?=[A-Z_.-]{0,40}\d)(?=\d{0,40}[A-Z_.-])[\w.-]{12})
      )["']?\s*[=:]\s*["']?(?:(?i:basic|bearer)\s+)?(?P<value>[^\s"',;&]{6,})
    """,
    re.VERBOSE,
)

# In lower case, one of which is in whatever SECRET finds: it tries each alternative at each character, which takes
# twenty times as long as to look for these.
SIGNS: Final = (
    *("hf_", "k-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "akia", "asia", "aiza"),
    *("ya29.", "nvapi-", "dckr_pat_", "pypi-", "npm_", "eyj", "bearer", "://"),
    *("key", "token", "secret", "passw", "passphrase", "authorization", "credential"),
)


@dataclass
class Masked:
    count: int = 0  # texts in which something was replaced


def clean(text: str, masked: Masked) -> str:
    """`text` on one line, with what looks like a secret replaced."""
    printable = UNPRINTABLE.sub(" ", text)
    shown = mask(printable)
    masked.count += shown != printable
    return shown


def mask(text: str) -> str:
    """`text` with what looks like a secret replaced; its lines stay as they are."""
    return SECRET.sub(without_value, text) if suspicious(text) else text


def suspicious(text: str) -> bool:
    """Whether SECRET may find something. Beyond ASCII other letters count as these, so it is asked itself."""
    lowered = text.lower()
    return not text.isascii() or any(sign in lowered for sign in SIGNS)


def without_value(match: "re.Match[str]") -> str:
    """The mask in the place of a secret, or of the value of `password=value`."""
    return MASK if match["value"] is None else match[0].replace(match["value"], MASK)


def coded(codes: NDArray[np.integer], texts: Iterable[str | bytes], masked: Masked) -> pd.Categorical:
    """A column of texts from the place of each in `texts`; bytes are UTF-8. What reads the same becomes one."""
    places: dict[str, int] = {}
    readable = (text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in texts)
    moved = [places.setdefault(clean(text, masked), len(places)) for text in readable]
    return pd.Categorical.from_codes(np.array(moved, dtype=np.int64)[codes], pd.Index(list(places), dtype="str"))
