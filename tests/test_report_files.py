"""The files that `qrprof report` writes: what is in them, and what is not."""

import re
import shlex
import shutil
import subprocess
import sys
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_pages import HOSTILE, Elements, hostile_page, page_of, report
from tui_runs import SMALL, add_example, add_small, change, ops, run_folder
from tui_traces import add_recorded

from qrprof.tui.app.session import Session
from qrprof.tui.app.views.start import EXAMPLE
from qrprof.tui.cli import run
from qrprof.tui.report import timeline
from qrprof.tui.report.timeline import Strip, merged

ID = "20260131-120000-train"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


@pytest.fixture
def small(root: Path) -> Path:
    """The folder of the one run: two steps on a CPU, 800 us each; linalg_qr 400 us, mm 175, the host's work 225."""
    shutil.copytree(SMALL, run_folder(root, ID))
    return run_folder(root, ID)


# --- what is in the page


def test_names_are_text_and_nothing_else(root: Path) -> None:
    page = Elements(hostile_page(root).read_text(encoding="utf-8"))
    assert page.tags().count("script") == 2
    assert not {"img", "b", "iframe"} & set(page.tags()[page.tags().index("main") :])
    assert not [name for _, attributes in page.found for name in attributes if name.startswith("on") or name == "style"]
    keys = {row["key"] for row in page.data["rank"]["rows"]}
    assert set(HOSTILE) <= keys
    said = page.sections["ranking"]
    for name in HOSTILE[:7]:
        assert name in said
        assert shlex.quote(name) in page.sections[""]  # the head, which shows the command
        assert name in page.sections["about"]
    assert not set("\u202e\x00\x1b\ud800") & set("".join(page.sections.values()))


def test_no_text_can_end_the_data(root: Path) -> None:
    text = hostile_page(root).read_text(encoding="utf-8")
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert data.isascii()
    assert not set("<>&") & set(data)


def test_the_policy_allows_the_pages_own_style_and_script_alone(small: Path) -> None:
    page = report()
    (policy,) = (one["content"] for tag, one in page.found if tag == "meta" and "http-equiv" in one)
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    style, script = (f"'sha256-{hashed(text)}'" for text in (page.raw["style"][0], page.raw["script"][1]))
    assert rules == {
        "default-src": "'none'",
        "style-src": style,
        "script-src": script,
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def hashed(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


def test_nothing_is_fetched(root: Path) -> None:
    add_example(root)
    page = report()
    assert not [one for tag, one in page.found if tag in ("link", "img", "iframe") or "src" in one]
    assert all(one["href"].startswith("#") for tag, one in page.found if tag == "a" and one["href"])
    targets = {one["id"] for _, one in page.found if "id" in one}
    assert {one["href"][1:] for tag, one in page.found if tag == "a" and one["href"]} <= targets


def test_a_large_trace_is_thinned_to_what_a_screen_can_show_and_the_page_says_so(root: Path) -> None:
    add_recorded(root, "soap_qr")
    page = report()
    trace = page.data["timeline"]
    drawn = sum(len(lane["ns"]) for lane in trace["lanes"])
    assert trace["quantum"] > 0
    assert drawn <= timeline.SPANS < trace["spans"]
    assert f"Of {trace['spans']:,} spans, those shorter than" in page.text("timeline")
    together = sum(count for lane in trace["lanes"] for _, count, _ in lane["several"])
    alone = drawn - sum(len(lane["several"]) for lane in trace["lanes"])
    assert together + alone == trace["spans"]
    assert Path("report.html").stat().st_size < 3e6


SPANS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 300), st.integers(0, 3)), min_size=1, max_size=60)


@given(spans=SPANS, quantum=st.sampled_from([0, 64, 128, 1024]))
def test_thinning_keeps_the_time_and_every_long_span(spans: list[tuple[int, int, int]], quantum: int) -> None:
    pause, ns, name = (np.array(column, dtype=np.int64) for column in zip(*spans, strict=True))
    end = np.cumsum(pause + ns)
    strip = Strip("lane", end - ns, end, name, name)
    marks = merged(strip, quantum, 0)
    assert (marks.count.sum(), marks.busy.sum()) == (len(ns), ns.sum())
    assert (marks.start[1:] >= marks.end[:-1]).all()
    assert (marks.busy <= marks.end - marks.start).all()
    long = set(zip(strip.start[ns >= quantum].tolist(), strip.end[ns >= quantum].tolist(), strict=True))
    alone = marks.count == 1
    assert long <= set(zip(marks.start[alone].tolist(), marks.end[alone].tolist(), strict=True))
    assert ((marks.end - marks.start)[~alone] < 2 * quantum).all()


# --- secrets


@pytest.mark.parametrize("output", ["--html", "--markdown"])
def test_redact_masks_the_command_line(small: Path, output: str) -> None:
    told = {"command": ["/home/alice/train.py", "--key", "hf_abcdefghijklmnopqrstuvwxyz"], "cwd": "/home/alice"}
    change(small, lambda record: record.update(told, notes=["read /home/alice/secret/plan.txt"]))
    assert run(["report", output, "out", "--redact"]) == 0
    text = Path("out").read_text(encoding="utf-8")
    assert "train.py --key [masked]" in text
    assert not re.search("alice|hf_abc|secret/", text)
    assert run(["report", output, "out"]) == 0
    assert "/home/alice/train.py" in Path("out").read_text(encoding="utf-8").replace("\\", "")


def test_redact_masks_what_is_cut_too(root: Path) -> None:
    long = f"{'/home/alice' + '/folder' * 40}/train.py:{'x' * 200}"
    add_small(root, ops([long, "aten::mm"]))
    report("--redact")
    assert not re.search("alice|folder", Path("report.html").read_text(encoding="utf-8"))


def test_redact_masks_names_in_the_trace(root: Path) -> None:
    add_small(root, ops(["/home/alice/train.py: loss", "aten::mm"]))
    page = report("--redact")
    assert "alice" not in Path("report.html").read_text(encoding="utf-8")
    assert "train.py: loss" in [row["key"] for row in page.data["rank"]["rows"]]


# --- Markdown

MARKDOWN = """\
**800 us** a step of `train.py --lr 1e-3`, Test CPU, 2 threads, torch 2.13.0

| # | what | ms/step | share | ceiling | gain, ms | basis |
|---:|---|---:|---:|---:|---:|---|
| 1 | `linalg_qr` | 0.400 | 50.0 % | 2.00x | up to 0.400 | ceiling |
| 2 | `host work (gap)` | 0.225 | 28.1 % | 1.39x | up to 0.225 | ceiling |
| 3 | `mm` | 0.175 | 21.9 % | 1.28x | up to 0.175 | ceiling |
|  | total | 0.800 | 100.0 % |  |  |  |
"""


def test_markdown_for_a_pull_request(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", "--markdown"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.startswith(MARKDOWN)
    assert "1. linalg\\_qr: Share a batch's matrices over threads" in printed.out
    assert "- coverage: host only: no launches and no device work; 2 steps\n" in printed.out
    assert run(["report", ID, "--markdown", "table.md"]) == 0
    assert Path("table.md").read_text(encoding="utf-8") == printed.out
    assert capsys.readouterr().err == "qrprof: wrote table.md\n"


def test_names_stay_inside_their_cell_of_a_markdown_table(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add_small(root, ops(["a|b `c` ``d``", "<img src=x>", "x\n| y |"]))
    assert run(["report", "--markdown"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [len(re.split(r"(?<!\\)\|", row)) for row in rows] == [9] * len(rows)
    assert any("``` a\\|b `c` ``d`` ```" in row for row in rows)
    assert any("`<img src=x>`" in row for row in rows)


# --- the files


def test_an_earlier_file_is_replaced(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("report.html").write_text("something old")
    report()
    assert re.fullmatch(r"qrprof: wrote report.html: [0-9.]+ KiB; open it in a browser\n", capsys.readouterr().err)
    assert sorted(path.name for path in Path().iterdir()) == [".qrprof", "report.html"]


@pytest.mark.parametrize(
    ("args", "code", "reason"),
    [
        ((), 2, "nothing to write: give --html FILE or --markdown"),
        (("--html",), 2, "--html"),
        (("--html", "no/such/out.html"), 1, "cannot write no/such/out.html: No such file or directory"),
        (("--markdown", "no/such/out.md"), 1, "cannot write no/such/out.md: No such file or directory"),
        (("--html", "."), 2, "is a directory"),
        (("--html", "out.html", "--rank", "4"), 2, "has no rank 4"),
        (("nothing", "--html", "out.html"), 2, "run 'nothing' is unknown"),
    ],
)
@pytest.mark.usefixtures("small")
def test_usage(capsys: pytest.CaptureFixture[str], args: tuple[str, ...], code: int, reason: str) -> None:
    assert run(("report", *args)) == code
    printed = capsys.readouterr()
    assert (printed.out, reason in printed.err) == ("", True)
    assert len(printed.err.splitlines()) == 1
    assert not Path("out.html").exists()


def test_files_of_the_run_are_never_overwritten(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (small / "run.json", small / "rank0.trace.json"):
        before = path.read_bytes()
        for option in ("--html", "--markdown"):
            assert run(["report", option, str(path)]) == 2
            assert "is a file of the run itself" in capsys.readouterr().err
        assert path.read_bytes() == before


def test_a_broken_trace_is_one_sentence(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (small / "rank0.trace.json").write_text('{"traceEvents": [{"ph"')
    assert run(["report", "--html", "out.html"]) == 1
    said = capsys.readouterr().err
    assert "rank0.trace.json" in said
    assert len(said.splitlines()) == 1
    assert not Path("out.html").exists()


def test_it_needs_neither_torch_nor_a_model(small: Path) -> None:
    script = "import sys; from qrprof.tui.cli import run; assert run(['report', '--html', 'out.html']) == 0"
    heavy = "assert not {'torch', 'triton', 'openai', 'textual'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", f"{script}; {heavy}"], check=True)


def test_the_page_is_the_same_each_time(small: Path) -> None:
    assert page_of(small, Path.cwd()) == page_of(small, Path.cwd())


def test_the_example_run_is_small_enough_to_send() -> None:
    page = page_of(EXAMPLE, EXAMPLE.parent / "nowhere")
    assert len(page.encode()) < 3e6
    assert Session(EXAMPLE).run.id in page
