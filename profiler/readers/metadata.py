"""What a Kineto trace says of its process beside the events: rank, devices, versions. Anything may be there or not."""

from collections.abc import Mapping
from typing import Any, Final

from qrprof.profiler.readers.texts import Masked, clean
from qrprof.profiler.runinfo import DeviceInfo

NAME_LIMIT: Final = 100  # characters
UNKNOWN_GPU: Final = "unknown GPU"


def rank_of(metadata: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Rank and world size; None: not there."""
    info = metadata.get("distributedInfo")
    if not isinstance(info, dict):
        return None, None
    return natural(info.get("rank")), natural(info.get("world_size"))


def devices_of(metadata: Mapping[str, Any]) -> tuple[DeviceInfo, ...]:
    listed = metadata.get("deviceProperties")
    found = [device for device in listed if isinstance(device, dict)] if isinstance(listed, list) else []
    return tuple(
        DeviceInfo(
            index=natural(device.get("id")) or 0,
            kind="cuda",
            name=clean(str(device.get("name") or UNKNOWN_GPU), Masked())[:NAME_LIMIT],
            memory_bytes=natural(device.get("totalGlobalMem")) or 0,
        )
        for device in found
    )


def versions_of(metadata: Mapping[str, Any]) -> dict[str, str]:
    cuda, hip = natural(metadata.get("cuda_runtime_version")), natural(metadata.get("hip_runtime_version"))
    versions = {}
    if cuda:
        versions["cuda"] = f"{cuda // 1000}.{cuda % 1000 // 10}"
    if hip:
        versions["hip"] = f"{hip // 10_000_000}.{hip // 100_000 % 100}.{hip % 100_000}"
    return versions


def natural(value: Any) -> int | None:
    """A whole number from 0 to 64 bits, also as text; None for anything else."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        value = int(value)
    return value if type(value) is int and 0 <= value < 1 << 63 else None
