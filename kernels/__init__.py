"""What could be faster: the kernel library. `install()` puts it under a running program, `uninstall()` takes it off."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qrprof.kernels.modes import Mode as Mode
    from qrprof.kernels.swap import install as install
    from qrprof.kernels.swap import report as report
    from qrprof.kernels.swap import uninstall as uninstall

__all__ = ["Mode", "install", "report", "uninstall"]


def __getattr__(name: str) -> Any:
    """Torch is imported when one of these is asked for, not with this package."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import torch  # noqa: F401 - what `qrprof run` does after this import needs the module below whole

    from qrprof.kernels import swap

    return getattr(swap, name)
