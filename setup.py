"""Stops where the links in src/qrprof are none, as in an archive that was unpacked without them."""

from pathlib import Path

from setuptools import setup

SOURCE = Path(__file__).parent / "src" / "qrprof"
NEEDED = ("docs", "kernels", "planner", "profiler", "redteam", "tui")

if missing := [name for name in NEEDED if not (SOURCE / name).is_dir()]:
    raise SystemExit(
        f"qrprof: {SOURCE} lacks the links {', '.join(missing)}, as where a zip file was unpacked: "
        "use `git clone`, or install the package with pip"
    )

setup()
