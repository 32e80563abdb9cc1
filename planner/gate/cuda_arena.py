"""An arena in a GPU's memory: a block that the driver hands out as a file descriptor.

Unlike the older IPC handles such a block crosses pid and network namespaces, and it needs no file in /dev/shm.
"""

import contextlib
import ctypes
import functools
import os

import torch
from torch import Tensor

u64, size_t = ctypes.c_uint64, ctypes.c_size_t
PINNED, ON_DEVICE, POSIX_FD, READ_WRITE, MINIMUM = 1, 1, 1, 3, 0  # of the driver's enumerations


class Location(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("number", ctypes.c_int))


class Flags(ctypes.Structure):
    _fields_ = (
        ("compression", ctypes.c_ubyte),
        ("rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    )


class Properties(ctypes.Structure):
    """CUmemAllocationProp"""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", Location),
        ("windows", ctypes.c_void_p),
        ("flags", Flags),
    )


class Access(ctypes.Structure):
    """CUmemAccessDesc"""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))


class Bytes:
    """Device memory as torch takes it over: torch keeps this object, and this keeps the arena."""

    def __init__(self, arena: "CudaArena", start: int, size: int) -> None:
        self.arena = arena
        at = (arena.address + start, False)
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": at, "version": 3}


class CudaArena:
    def __init__(self, fd: int, handle: int, size: int) -> None:
        """Takes over a descriptor and maps the block it stands for; `size` in bytes, whole granules."""
        self.fd = fd
        self.size = size
        self.address = 0
        reserved, access = u64(), Access(location(), READ_WRITE)
        call("cuMemAddressReserve", ctypes.byref(reserved), size_t(size), size_t(0), u64(0), u64(0))
        try:
            call("cuMemMap", reserved, size_t(size), size_t(0), u64(handle), u64(0))
        except RuntimeError:
            call("cuMemAddressFree", reserved, size_t(size))
            raise
        self.address = reserved.value
        call("cuMemSetAccess", reserved, size_t(size), ctypes.byref(access), size_t(1))

    @classmethod
    def made(cls, size: int) -> "CudaArena":
        size, handle, fd = whole_granules(size), u64(), ctypes.c_int()
        call("cuMemCreate", ctypes.byref(handle), size_t(size), ctypes.byref(properties()), u64(0))
        try:
            call("cuMemExportToShareableHandle", ctypes.byref(fd), handle, ctypes.c_int(POSIX_FD), u64(0))
            return cls(fd.value, handle.value, size)
        finally:
            call("cuMemRelease", handle)  # the mapping and the descriptor keep the block

    @classmethod
    def attached(cls, fd: int, size: int) -> "CudaArena":
        handle = u64()
        try:
            call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(fd), ctypes.c_int(POSIX_FD))
        except RuntimeError as error:
            os.close(fd)
            raise ValueError(f"no block of device memory ({error})") from None
        try:
            return cls(fd, handle.value, size)
        except RuntimeError as error:
            raise ValueError(f"a block of device memory that is too small ({error})") from None
        finally:
            call("cuMemRelease", handle)

    @property
    def data(self) -> Tensor:
        """Not kept: it keeps this object."""
        return self.part(0, self.size, torch.uint8)

    def part(self, start: int, elements: int, dtype: torch.dtype) -> Tensor:
        device = torch.device("cuda", torch.cuda.current_device())
        data = torch.as_tensor(Bytes(self, start, elements * dtype.itemsize), device=device)
        return torch.empty(0, dtype=dtype, device=device).set_(data.untyped_storage())

    def __del__(self) -> None:
        os.close(self.fd)
        if self.address:
            with contextlib.suppress(RuntimeError):  # as python ends, the driver may have ended before
                call("cuMemUnmap", u64(self.address), size_t(self.size))
                call("cuMemAddressFree", u64(self.address), size_t(self.size))


def whole_granules(size: int) -> int:
    granule = size_t()
    call("cuMemGetAllocationGranularity", ctypes.byref(granule), ctypes.byref(properties()), ctypes.c_int(MINIMUM))
    return -(-size // granule.value) * granule.value


def properties() -> Properties:
    return Properties(PINNED, POSIX_FD, location(), None, Flags())


def location() -> Location:
    return Location(ON_DEVICE, torch.cuda.current_device())


@functools.cache
def driver() -> ctypes.CDLL:
    torch.cuda.synchronize()  # makes a context where there is none yet
    return ctypes.CDLL("libcuda.so.1")


def call(name: str, *args: object) -> None:
    """Raises RuntimeError with the driver's name of the error."""
    result = driver()[name](*args)
    if result:
        text = ctypes.c_char_p()
        driver().cuGetErrorName(result, ctypes.byref(text))
        raise RuntimeError(f"{name}: {(text.value or b'unknown error').decode()}")
