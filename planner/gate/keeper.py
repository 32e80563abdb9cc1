"""Keeps one candidate's process contained, and leaves nothing of it running.

A script of its own with the standard library alone, so that it starts in a moment: `python -I -S keeper.py SETTINGS`.
It starts the command, inside namespaces if asked, and waits until that ends, or has started too many tasks, or the
other end of the lifeline closes, which it does however the gate ends. Then it kills every process below it, also those
that have left their session and lost their parent, since it is the one that orphans are handed to. It ends as the
command did, or removes the command's folder.
"""

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import stat
import sys
from pathlib import Path
from typing import Any, NoReturn

LIBC = ctypes.CDLL(None, use_errno=True)
SYS_MOUNT_SETATTR = 442  # on every architecture
AT_RECURSIVE, ATTR_RDONLY = 0x8000, 1
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 24, 36, 38
NEW_MOUNTS, NEW_UTS, NEW_IPC, NEW_USER, NEW_PIDS, NEW_NETWORK = (
    0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
NOSUID, NODEV, NOEXEC, BIND, RECURSIVE, PRIVATE = 2, 4, 8, 0x1000, 0x4000, 1 << 18
LAST_CAPABILITY = 63
MACHINE = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus")  # root may write there without capabilities
LINKS = {
    "/dev/fd": "/proc/self/fd",
    **{f"/dev/std{name}": f"/proc/self/fd/{n}" for n, name in enumerate(("in", "out", "err"))},
}
FAILED = 125  # the exit code where the containment could not be set up
TOO_MANY = 124  # where the command started more tasks than it may
LOOK_S = 0.05  # between two looks at how many tasks there are
URGENT = -20  # the nice value with which a few looks are taken even from among thousands of processes


def main() -> NoReturn:
    settings = json.loads(sys.argv[1])
    lifeline = settings["lifeline"]
    os.set_inheritable(lifeline, False)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    # A terminal's ctrl-c goes to the whole group: it is for the gate, which then lets go of the lifeline.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    start = start_in_namespaces if settings["namespaces"] else start_plainly
    child, report = start(settings)
    let_go(settings["passed"])
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, URGENT)
    try:
        status = wait_for(child, lifeline, ended, settings["tasks"])
    finally:
        end_all()
    if status is None:
        remove(settings["folder"])  # the gate may be gone and not do it
        os._exit(0)
    finish(int((report and os.read(report, 20)) or status))


def let_go(passed: list[int]) -> None:
    """Close what is only for the command: the gate must see that it has closed it."""
    for fd in passed:
        os.close(fd)


def wait_for(child: int, lifeline: int, ended: int, most: int) -> int | None:
    """The child's wait status, or one with TOO_MANY for more than `most` tasks; None once the lifeline is cut."""
    before = machine_tasks()
    while True:
        ready, _, _ = select.select([lifeline, ended], [], [], LOOK_S)
        if machine_tasks() - before > most and sum(map(threads, descendants(os.getpid()))) > most:
            return TOO_MANY << 8
        if ended in ready:
            os.read(ended, 4096)
            for pid, status in reaped():
                if pid == child:
                    return status
        if lifeline in ready:
            return None


def reaped() -> list[tuple[int, int]]:
    found = list[tuple[int, int]]()
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        found.append((pid, status))


def end_all() -> None:
    """Kill until there is nothing left to kill.

    The first processes go first: with the first of a pid namespace all others in it end. The others are stopped before:
    what is stopped starts no more.
    """
    for pid in descendants(os.getpid())[:3]:
        kill(pid, signal.SIGKILL)
    while alive := descendants(os.getpid()):
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in alive:
                kill(pid, number)
        if not reaped():
            select.select([], [], [], 0.002)


def machine_tasks() -> int:
    """Of all processes of the machine: one short read."""
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])


def threads(pid: int) -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/task"))
    return 0


def kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                after_name = Path("/proc", entry, "stat").read_text(errors="replace").rpartition(")")[2]
            except OSError:
                continue
            children.setdefault(int(after_name.split()[1]), []).append(int(entry))
    found = list(children.get(root, ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def remove(folder: str) -> None:
    """Remove a folder, also where its permissions forbid it, and however deep it is: each folder is taken out first."""
    waiting, number = [folder], 0
    while waiting:
        here = waiting.pop()
        with contextlib.suppress(OSError):
            os.chmod(here, 0o700)
            for entry in list(os.scandir(here)):
                if entry.is_dir(follow_symlinks=False):
                    number += 1
                    waiting.append(f"{folder}.{number}")
                    os.chmod(entry.path, 0o700)
                    os.rename(entry.path, waiting[-1])
                else:
                    os.unlink(entry.path)
            os.rmdir(here)


def finish(status: int) -> NoReturn:
    """End as the command did, by the same signal if it was one."""
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = os.WTERMSIG(status)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


# --- the command's process


def start_plainly(settings: dict[str, Any]) -> tuple[int, None]:
    keeper = os.getpid()
    child = os.fork()
    if child == 0:
        become(settings, keeper)
    return child, None


def become(settings: dict[str, Any], parent: int) -> NoReturn:
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(FAILED)
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        Path("/proc/self/oom_score_adj").write_text("1000")  # where memory runs out, this is what has to go
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.setsid()
        os.chdir(settings["folder"])
        os.execv(settings["command"][0], settings["command"])
    except OSError as error:
        give_up(error)


def give_up(error: OSError) -> NoReturn:
    os.write(2, f"qrprof: {error}\n".encode())
    os._exit(FAILED)


# --- namespaces


def start_in_namespaces(settings: dict[str, Any]) -> tuple[int, int]:
    """The first process of a new pid namespace, with which all others in it end, and where it reports from."""
    user, group = os.geteuid(), os.getegid()
    report, reporter = os.pipe()
    try:
        check(LIBC.unshare(NEW_USER | NEW_PIDS | NEW_NETWORK | NEW_IPC | NEW_UTS), "unshare")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    except OSError as error:
        give_up(error)
    first = os.fork()
    if first == 0:
        os.close(report)
        be_first(settings, reporter)
    os.close(reporter)
    return first, report


def be_first(settings: dict[str, Any], reporter: int) -> NoReturn:
    """Hide and protect the file system, start the command, reap what is orphaned, and report how the command ended."""
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        check(LIBC.unshare(NEW_MOUNTS), "unshare")
        arrange_files(settings)
    except OSError as error:
        give_up(error)
    child = os.fork()
    if child == 0:
        drop_capabilities()
        become(settings, os.getppid())
    let_go(settings["passed"])
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            os.write(reporter, str(status).encode())
            os._exit(0)


def arrange_files(settings: dict[str, Any]) -> None:
    """Everything read-only but `folder`; `hidden` folders empty, but for what is `shown` below them; few `devices`."""
    mount(None, "/", None, RECURSIVE | PRIVATE)
    kept = [*settings["shown"], *settings["devices"], settings["folder"]]
    held = {path: os.open(path, os.O_PATH) for path in kept}  # before they are hidden
    for folder in [*settings["hidden"], "/dev"]:
        mount("tmpfs", folder, "tmpfs", NOSUID | NODEV, "size=1m,mode=755")
    for path, fd in held.items():
        stand_in(Path(path), stat.S_ISDIR(os.fstat(fd).st_mode))
        mount(f"/proc/self/fd/{fd}", path, None, BIND | RECURSIVE)
        os.close(fd)
    for name, target in LINKS.items():
        os.symlink(target, name)
    os.mkdir("/dev/shm")
    set_read_only("/", True)
    mount("proc", "/proc", "proc", NOSUID | NODEV | NOEXEC)
    for path in filter(os.path.exists, MACHINE):
        mount(path, path, None, BIND | RECURSIVE)
        set_read_only(path, True)
    mount("tmpfs", "/dev/shm", "tmpfs", NOSUID | NODEV, "size=1g,mode=1777")
    set_read_only(settings["folder"], False)


def stand_in(path: Path, folder: bool) -> None:
    if folder:
        path.mkdir(parents=True, exist_ok=True)
    elif not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def drop_capabilities() -> None:
    for capability in range(LAST_CAPABILITY + 1):
        LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # it fails for numbers that the kernel does not know


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    check(LIBC.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]), f"mount {target}")


def set_read_only(path: str, on: bool) -> None:
    attributes = (ctypes.c_uint64 * 4)(ATTR_RDONLY if on else 0, 0 if on else ATTR_RDONLY, 0, 0)
    result = LIBC.syscall(SYS_MOUNT_SETATTR, -100, os.fsencode(path), AT_RECURSIVE, attributes, ctypes.c_size_t(32))
    check(result, f"mount_setattr {path}")


def prctl(option: int, value: int) -> None:
    check(LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0), "prctl")


def check(result: int, call: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


if __name__ == "__main__":
    main()
