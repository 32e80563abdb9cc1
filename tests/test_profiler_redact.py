"""What `redact` leaves out of an exported file, and what it leaves in."""

import json
import os
import shlex
import socket
from pathlib import Path
from typing import Any

import pytest
from pandas.testing import assert_frame_equal

from qrprof.profiler.perfetto import export
from qrprof.profiler.readers import kineto
from qrprof.profiler.redact import redactor
from qrprof.profiler.trace import Trace

DATA = Path(__file__).parent / "data"
PUBLIC = Path(os.environ.get("QRPROF_TRACES", Path(__file__).parents[2] / "shared" / "traces"))
OWN = sorted(DATA.glob("own_h200_*.json.gz"))
OTHERS: list[Any] = [path for path in sorted(PUBLIC.glob("*.json.gz")) if not path.name.startswith("own_")]
TRACES = [*OWN, *OTHERS] if OTHERS else [*OWN, pytest.param(Path(), marks=pytest.mark.skip("no public traces"))]

PLANTED = [
    "/home/alice/secret-project/train.py(12): step",
    "load of alice on gpu-node-17",
    r"C:\Users\Bob Smith\models\net.py",
    "read /mnt/lake/client-x/shard-0001.parquet",
    "src/private/net.py:12",
    "s3://bucket.eu.amazonaws.com/client-x/model.pt?sig=abcdef",
    "https://carol:hunter2hunter2@tracker.example.org/run/17",
    "mail dave@corp.example.org",
    "scp alice@login1.hpc.example.edu",
    "10.20.30.40:8080",
    "node-7.rack2.cluster.internal",
    "hf_abcdefghijklmnopqrstuvwxyz012345",
    "token=Zm9vYmFyMTIzNDU2",
    "WANDB_API_KEY: 0123456789abcdef0123456789abcdef01234567",
    "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc",
    "deadbeefdeadbeefdeadbeefdeadbeef",
    "key Ab3dE5fG7hI9jK1lM3nO5pQ7rS9t",
    "joined 2001:db8::17",
]
MUST_GO = """
    alice Bob Smith carol dave gpu-node-17 secret-project client-x /mnt /home private amazonaws hunter2 example.org
    example.edu hpc 10.20.30.40 rack2 internal abcdefghijklmnop Zm9vYmFy 0123456789abcdef wJalr K7MDENG eyJ deadbeef
    Ab3dE5 db8
"""


def test_redacted_files_hold_no_secret(tmp_path: Path, build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu-node-17")
    rows = [build.note(text, 100 * place, 100 * place + 90) for place, text in enumerate(PLANTED)]
    gap = [build.kernel("first", 0, 1), build.kernel("second", 50_000, 50_001)]  # a gap, blamed on an annotation
    trace = Trace.from_rows([*rows, *gap, build.note("/home/alice/idle.py", 0, 60_000), build.op("aten::mm", 0, 1)])
    run = build.run().model_copy(update={"command": ["/home/alice/train.py", "--token=Zm9vYmFyMTIzNDU2"]})
    export(trace, tmp_path / "open.json", run)
    export(trace, tmp_path / "closed.json", run, redacted=True)
    as_recorded, shown = (tmp_path / "open.json").read_text(), (tmp_path / "closed.json").read_text()
    assert "/home/alice/train.py --token=Zm9vYmFyMTIzNDU2" in as_recorded
    assert [word for word in MUST_GO.split() if word.lower() in shown.lower()] == []
    kept = {event["name"] for event in json.loads(shown)["traceEvents"] if event["ph"] == "X"}
    assert {"train.py(12): step", "load of [user] on [host]", "net.py", "net.py:12", "read shard-0001.parquet"} <= kept
    assert "host work: idle.py" in shown
    texts = dict.fromkeys(("kind", "shapes", "dtypes"), str)
    hidden, plain = (
        one.events.drop(columns="name").astype(texts) for one in (kineto.read(tmp_path / "closed.json"), trace)
    )
    assert_frame_equal(hidden, plain)


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("train.py --password hunter2 --lr 1e-3", "train.py --password [masked] --lr 1e-3"),
        ("train.py --wandb-api-key=12345678 --hf_token ab", "train.py --wandb-api-key=[masked] --hf_token [masked]"),
        ("train.py --pw 'two words' -v", "train.py --pw [masked] -v"),
        (shlex.join(["train.py", "--pw", "it's"]), "train.py --pw [masked]"),
        ("train.py db.password=abc", "train.py db.password=[masked]"),
        (shlex.join(["train.py", "--password=p$s", "--lr=1"]), "train.py '--password=[masked]' --lr=1"),
        (shlex.join(["train.py", "--password=it's", "-v"]), "train.py '--password=[masked]' -v"),
        (shlex.join(["train.py", "--user=jane doe", "x y"]), "train.py '--user=[user]' 'x y'"),
        (shlex.join(["train.py", "db.password=a b"]), "train.py 'db.password=[masked]'"),
        (
            "train.py -m wandb.entity=jane --multirun db.pw=ab1",
            "train.py -m wandb.entity=[user] --multirun db.pw=[masked]",
        ),
        (shlex.join(["train.py", "-m", "db.pw=a b"]), "train.py -m 'db.pw=[masked]'"),
        (
            "train.py --password=-ab12 +wandb.entity=bob ++key=x",
            "train.py --password=[masked] +wandb.entity=[user] ++key=[masked]",
        ),
        ("train.py --password abc=def", "train.py --password [masked]"),
        ("train.py '--lr=1 2' 'two words'", None),
        ("train.py --user carol --master-addr node17", "train.py --user [user] --master-addr [host]"),
        ("train.py --tokens 512 --num-key-value-heads 8 --monkey 3 --no-password", None),
        ("train.py --token --resume", None),
        ("aten::mm(key=3)", None),
    ],
)
def test_what_an_option_is_given_goes_where_its_name_tells(command: str, shown: str | None) -> None:
    assert redactor([])(command) == (shown or command)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_names_of_ops_and_kernels_are_no_secrets(path: Path) -> None:
    events = kineto.read(path).events
    hide = redactor(events["name"].cat.categories)
    named = events.loc[events["kind"].isin(["op", "runtime", "kernel", "copy", "memset"]), "name"].unique()
    assert [name for name in named if hide(name) != name] == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("block/attn/qkv", "block/attn/qkv"),
        ("Torch-Compiled Region: 0/0", "Torch-Compiled Region: 0/0"),
        ("max_tokens=4096", "max_tokens=4096"),
        ("torch.nn.functional.linear", "torch.nn.functional.linear"),
        ("/home/alice", "[user]"),
        ("~/x/.ssh/id_ed25519", "id_ed25519"),
        ("file:///tmp/a/b.json", "b.json"),
        ("--out=/scratch/run1 done", "--out=run1 done"),
        (r"\\server\share\data.bin", "data.bin"),
        ("fe80::1ff:fe23:4567:890a", "[host]"),
        ("ip-10-0-0-12", "[host]"),
        ("550e8400-e29b-41d4-a716-446655440000", "[masked]"),
        ("CollectiveMainloopFwdSm90TmaGmmaWarpSpecialized", "CollectiveMainloopFwdSm90TmaGmmaWarpSpecialized"),
    ],
)
def test_redacted_texts(text: str, shown: str) -> None:
    assert redactor([])(text) == shown


@pytest.mark.parametrize("piece", ["a", "a-", "a1", "a.", "a/", "/a", "a@", "1.", "A:\\", "x_", "aA1", "= "])
def test_long_texts_are_redacted_in_linear_time(piece: str) -> None:
    """20,000 characters would take minutes in quadratic time."""
    assert isinstance(redactor([])(piece * (20_000 // len(piece))), str)


def test_short_and_common_names_are_left_in_words() -> None:
    hide = redactor(["/home/al/x", "/home/root/y"], ["localhost"])
    assert hide("al root localhost normal") == "al root localhost normal"
    assert redactor([], ["Node5"])("node5 node55 _node5_") == "[host] node55 _[host]_"
