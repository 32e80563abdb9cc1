// Instructions of capability 9.0 and later that CUDA C++ has no names for: clusters of blocks that store into each
// other's shared memory, and barriers there at which what is stored arrives (mbarrier).
__device__ __forceinline__ unsigned address_of(const void *here) { return (unsigned)__cvta_generic_to_shared(here); }

__device__ __forceinline__ unsigned address_in(const void *here, int block) {
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address_of(here)), "r"(block));
    return there;
}

__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_barrier() { cluster_arrive(), cluster_wait(); }

struct Barrier {
    unsigned long long state;
};

__device__ __forceinline__ void barrier_init(Barrier *barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address_of(barrier)) : "memory");
}

__device__ __forceinline__ void fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ __forceinline__ void barrier_expect(Barrier *barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_of(barrier)), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void barrier_wait(Barrier *barrier, int parity) {
    asm volatile("{\n\t.reg .pred done;\n"
                 "AGAIN:\n\tmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n\t"
                 "@done bra DONE;\n\tbra AGAIN;\nDONE:\n\t}" ::"r"(address_of(barrier)), "r"(parity)
                 : "memory");
}

// A value to the same place in another block of the cluster; its bytes arrive at that block's barrier.
__device__ __forceinline__ void send(float *here, int block, float value, Barrier *barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(
                     address_in(here, block)), "f"(value), "r"(address_in(barrier, block))
                 : "memory");
}

#if CLUSTER > 1
#define TOGETHER __cluster_dims__(CLUSTER, 1, 1)
#else
#define TOGETHER
#endif
