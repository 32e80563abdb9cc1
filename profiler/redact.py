"""Texts of a trace without what tells who ran it and where: for a file that leaves the house.

Paths become base names; user and host names, addresses and mail addresses are replaced; what looks like a token or a
secret is masked. User names are learned from the home folders in the texts themselves, so a name that only
stands in an annotation goes too. Names of ops and kernels stay as they are.
"""

import getpass
import re
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Final

from qrprof.profiler.readers.texts import MASK, SECRET, without_value

USER: Final = "[user]"
SERVER: Final = "[host]"
SHORTEST_NAME: Final = 3  # characters; shorter ones stand in too many words
NOBODY: Final = frozenset({"root", "user", "users", "admin", "nobody", "localhost", "runner", "home", "main", "shared"})

HOME: Final = re.compile(r"(?:/(?:home|Users)/|[A-Za-z]:\\Users\\)([^/\\\n\"']+?)(?=[/\\\"']|$)")
URL: Final = re.compile(r"(?<![\w+.-])([a-z][a-z0-9+.-]{0,19})://([^\s\"'<>,;]+)", re.IGNORECASE)
WINDOWS_PATH: Final = re.compile(r"(?:\b[A-Za-z]:|\\)(?:\\[^\\/:*?\"<>|\n]+)*\\([^\\/:*?\"<>|\s]*)")
ABSOLUTE_PATH: Final = re.compile(r"(?<![\w/.<:\]])(?:~[\w.-]*|\.{1,2})?(?:/[\w.+@%~=\[\]-]+)+/?")
SOURCE_ENDINGS: Final = (
    "py pyc pyx ipynb c cc cpp cxx cu cuh h hpp hip so dll exe sh json gz pt pth bin onnx safetensors parquet "
    "yaml yml toml cfg ini txt log csv tsv npy npz pkl tar zip"
).replace(" ", "|")
RELATIVE_PATH: Final = re.compile(rf"(?<![\w/.+-])(?:[\w.+-]+/)+([\w.+-]+\.(?:{SOURCE_ENDINGS}))\b")
MAIL: Final = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[A-Za-z0-9][\w.-]*\b")
ADDRESS: Final = re.compile(
    r"""
      (?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?(?![\w.])
    | (?<![\w:])(?:[0-9a-f]{1,4}:){5,7}[0-9a-f]{1,4}(?![\w:])
    | \bfe80::[0-9a-f:]+
    | (?<![\w:])(?:[23][0-9a-f]{3}|f[cd][0-9a-f]{2})(?::[0-9a-f]{1,4}){0,6}::(?:[0-9a-f]{1,4}:?){0,6}(?![\w:])
    | \bip-\d+-\d+-\d+-\d+\b(?:\.[\w.-]+)?
    | (?<![\w.@-])(?:[a-z0-9][a-z0-9-]*\.)+(?:com|org|edu|gov)(?![\w.(-])
    | (?<![\w.@-])(?=[a-z0-9.-]*(?:[a-z]\d|[a-z0-9]-[a-z0-9]))(?:[a-z0-9][a-z0-9-]*\.){2,}[a-z]{2,12}(?![\w.(-])
    """,
    re.VERBOSE | re.IGNORECASE,
)
NAMED_SECRET: Final = re.compile(
    r"(?i:token|secret|passw|pwd|cookie|session|api[_-]?key|credential)[\w-]{0,40}[\"']?\s{0,4}[=:]\s{0,4}[\"']?"
    r"(?P<value>(?!\d+\b)[^\s\"',;&\[\]]{6,})"
)
# An option of a command, or a setting, and what it is given; which of them tell, the last word of its name says. Where
# what is given needs it, a shell's quotes are around both.
OPTION: Final = r"--?[A-Za-z][\w.-]*"
SETTING: Final = r"\+{0,2}[A-Za-z_][\w.]*"
WORD_OF_A_SHELL: Final = r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"])"
GIVEN: Final = re.compile(
    rf"(?<!\S)(?P<name>{OPTION}(?==|\s+(?!-))|{SETTING}(?==))(?:=|\s+)(?P<value>{WORD_OF_A_SHELL}+)"
)
QUOTED: Final = re.compile(
    rf"(?<!\S)(?P<quote>['\"])(?P<name>{OPTION}|{SETTING})="
    rf"(?P<value>(?:(?!(?P=quote)).)*(?P=quote){WORD_OF_A_SHELL}*)"
)
TELLING: Final = {
    MASK: re.compile(
        r"(?i)(?<![a-z])(?:pass(?:word|wd|phrase)?|pwd?|secret|token|(?:api)?key|credentials?|cookie)\d*\Z"
    ),
    USER: re.compile(r"(?i)(?<![a-z])(?:user(?:name)?|login|account|e?mail|entity)\d*\Z"),
    SERVER: re.compile(r"(?i)(?<![a-z])(?:host(?:name)?|server|addr(?:ess)?|ip)\d*\Z"),
}
HEX: Final = re.compile(r"(?i)(?<!\w)(?:[0-9a-f]{32,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?!\w)")
RUN: Final = re.compile(r"(?<![\w+/=-])[A-Za-z0-9+/=-]{24,}(?![\w+/=-])")
WORD: Final = re.compile(r"[a-z]{8}")  # eight small letters in a row are a word, not chance

Redact = Callable[[str], str]


def redactor(texts: Iterable[str], names: Iterable[str] = ()) -> Redact:
    """What redacts a text. User names are learned from all `texts`; `names` are further ones of users and hosts."""
    users = {found for text in texts for found in HOME.findall(text)}
    known = sorted({name for name in (*users, *names) if telling(name)}, key=len, reverse=True)
    anyone = re.compile(rf"(?i)(?<![a-z0-9])(?:{'|'.join(map(re.escape, known))})(?![a-z0-9])") if known else None
    hosts = {name.lower() for name in names} - {name.lower() for name in users}

    @lru_cache(maxsize=1 << 16)  # a trace says the same names over and over
    def redact(text: str) -> str:
        text = GIVEN.sub(without_given, QUOTED.sub(without_quoted, text))
        text = SECRET.sub(without_value, text)
        text = NAMED_SECRET.sub(without_value, text)
        text = URL.sub(without_server, text)
        text = shorten_paths(MAIL.sub(f"{USER}@{SERVER}", text))
        text = ADDRESS.sub(SERVER, text)
        if anyone:
            text = anyone.sub(lambda found: SERVER if found[0].lower() in hosts else USER, text)
        return RUN.sub(masked_if_random, HEX.sub(MASK, text))

    return redact


def names_here() -> list[str]:
    """This machine's names, and the user's."""
    names = [socket.gethostname(), socket.gethostname().partition(".")[0]]
    with suppress(KeyError, OSError, ImportError):  # a container may run without a name for its user
        names.append(getpass.getuser())
    return names


def telling(name: str) -> bool:
    """Whether a name says who or where, and may be replaced wherever it stands."""
    return len(name) >= SHORTEST_NAME and name.lower() not in NOBODY


def without_homes(text: str) -> str:
    """The text with a user's name in the path of a home folder replaced."""
    return HOME.sub(lambda home: home[0].replace(home[1], USER), text)


def shorten_paths(text: str) -> str:
    text = without_homes(text)
    text = WINDOWS_PATH.sub(r"\1", text)
    text = ABSOLUTE_PATH.sub(lambda path: path[0].rstrip("/").rpartition("/")[2], text)
    return RELATIVE_PATH.sub(r"\1", text)


def without_given(found: "re.Match[str]") -> str:
    """An option with what stands for its value, where its name says that this tells who or where, or is a secret.

    Else what follows it may be a setting of its own.
    """
    instead = told_by(found["name"]) or GIVEN.sub(without_given, QUOTED.sub(without_quoted, found["value"]))
    return found[0].removesuffix(found["value"]) + instead


def without_quoted(found: "re.Match[str]") -> str:
    instead = told_by(found["name"])
    return found[0].removesuffix(found["value"]) + instead + found["quote"] if instead else found[0]


def told_by(name: str) -> str | None:
    """What stands for the value of an option of this name; None: it tells nothing."""
    return next((instead for instead, telling in TELLING.items() if telling.search(name)), None)


def without_server(url: "re.Match[str]") -> str:
    """A URL with its scheme and the base name of its path; of a file the base name."""
    scheme, rest = url[1], re.split(r"[?#]", url[2])[0]
    base = rest.rstrip("/").rpartition("/")[2] if "/" in rest.rstrip("/") else ""
    if scheme.lower() == "file":
        return base
    return f"{scheme}://{SERVER}" + (f"/{base}" if base else "")


def masked_if_random(run: "re.Match[str]") -> str:
    """A long run of letters and digits that no one would write: both cases, several digits, no words in it."""
    text = run[0]
    random = (
        sum(char.isdigit() for char in text) >= 3 and text.lower() != text != text.upper() and not WORD.search(text)
    )
    return MASK if random else text
