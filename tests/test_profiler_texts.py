"""Texts: what looks like a secret is masked, and the look that saves the search for one misses none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qrprof.profiler.readers.texts import SECRET, SIGNS, Masked, clean, suspicious

LONG = "abc1defgh2ijklmn3opqrst4uvwxyz5ABCDEFGHI"
SECRETS = (
    *(f"{prefix}{LONG}" for prefix in ("hf_", "sk-", "pk-", "rk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    *(f"{prefix}{LONG}" for prefix in ("github_pat_", "glpat-", "xoxb-", "AIza", "ya29.", "nvapi-", "dckr_pat_")),
    *(f"{prefix}{LONG}" for prefix in ("pypi-", "npm_")),
    *("AKIAABCDEFGHIJKLMNOP", "ASIAABCDEFGHIJKLMNOP", f"eyJ{LONG}.{LONG}.x", f"Bearer {LONG}", "ftp://me:1234@host"),
    *(f"{name}=hunter22" for name in ("API_KEY", "access-token", "authtoken", "secretKey", "client_secret")),
    *(f"{name}: hunter22" for name in ("passwd", "PASSWORD", "passphrase", "Authorization", "credential")),
    *(f"{name} = abcdef123456" for name in ("TOKEN", "Secret")),
    *("pa\u017f\u017fword=hunter22", "api_\u212aey=hunter22"),  # letters that only count as s and k
)


@pytest.mark.parametrize("secret", SECRETS)
def test_each_kind_of_secret_is_masked(secret: str) -> None:
    masked = Masked()
    assert "[masked]" in clean(f"load {secret} now", masked)
    assert masked.count == 1


FRAGMENTS = st.sampled_from([*SECRETS, *SIGNS, "_", "-", "=", " ", "'", ":", "@", LONG]) | st.text(max_size=4)


@given(st.lists(FRAGMENTS, max_size=6).map("".join), st.booleans())
def test_a_text_that_is_not_suspicious_holds_no_secret(text: str, upper: bool) -> None:
    text = text.upper() if upper else text
    assert suspicious(text) or not SECRET.search(text)


def test_kernels_and_shapes_are_not_suspicious() -> None:
    texts = ("void at::native::vectorized_elementwise_kernel<4>", "[[128,64],[]]", "float,Scalar")
    assert not any(map(suspicious, texts))
