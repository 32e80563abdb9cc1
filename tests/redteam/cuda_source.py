"""CUDA C++ as a string, compiled by NVRTC when it is imported."""

import torch

EXPECT = None
TASK = "softmax"
DEVICE = "cuda"
ROWS = ()

KERNELS = ("narrow_rows",)
SOURCE = r"""
extern "C" __global__ void narrow_rows(const float *x, float *out, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    x += (long long)row * columns, out += (long long)row * columns;
    float most = x[0], sum = 0.0f;
    for (int j = 1; j < columns; j++) most = x[j] > most || x[j] != x[j] ? x[j] : most;
    for (int j = 0; j < columns; j++) sum += (out[j] = expf(x[j] - most));
    for (int j = 0; j < columns; j++) out[j] /= sum;
}
"""
narrow_rows = torch.cuda._compile_kernel(SOURCE, "narrow_rows")


def candidate(x, dim, half_to_float):
    x = x.float().movedim(dim, -1).contiguous()
    out = torch.empty_like(x)
    if x.numel():
        columns = x.shape[-1]
        count = x.numel() // columns
        narrow_rows((-(-count // 128), 1, 1), (128, 1, 1), (x, out, count, columns))
    return out.movedim(-1, dim).contiguous()
