// Instructions of capability 9.0 and later that CUDA C++ has no names for: clusters of blocks that store into each
// other's shared memory, barriers there at which what is stored arrives (mbarrier), and copies of many bytes.
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

__device__ __forceinline__ int cluster_rank() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ void store_in(float *here, int block, float value) {
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address_in(here, block)), "f"(value) : "memory");
}

// A barrier of the block, by number, at which some threads of COUNT only arrive and the others wait for them.
template <int COUNT> __device__ __forceinline__ void arrive_at(int barrier) {
    asm volatile("barrier.cta.arrive %0, %1;" ::"r"(barrier), "n"(COUNT) : "memory");
}
template <int COUNT> __device__ __forceinline__ void wait_at(int barrier) {
    asm volatile("barrier.cta.sync %0, %1;" ::"r"(barrier), "n"(COUNT) : "memory");
}

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

// For what arrives in this block's shared memory. An acquire of the cluster also empties the cache of global memory.
__device__ __forceinline__ void barrier_wait_here(Barrier *barrier, int parity) {
    asm volatile("{\n\t.reg .pred done;\n"
                 "AGAIN:\n\tmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
                 "@done bra DONE;\n\tbra AGAIN;\nDONE:\n\t}" ::"r"(address_of(barrier)), "r"(parity)
                 : "memory");
}

// A value to the same place in another block of the cluster; its bytes arrive at that block's barrier.
__device__ __forceinline__ void send(float *here, int block, float value, Barrier *barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(
                     address_in(here, block)), "f"(value), "r"(address_in(barrier, block))
                 : "memory");
}

__device__ __forceinline__ void send(float4 *here, int block, float4 v, Barrier *barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
                 "[%0], {%1, %2, %3, %4}, [%5];" ::"r"(address_in(here, block)),
                 "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(address_in(barrier, block))
                 : "memory");
}

// Multiples of 16 bytes from global to shared memory, which arrive at the barrier; and back, until bulk_wait.
__device__ __forceinline__ void bulk_load(void *to, const void *from, unsigned bytes, Barrier *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     address_of(to)), "l"(from), "r"(bytes), "r"(address_of(barrier))
                 : "memory");
}
__device__ __forceinline__ void bulk_store(void *to, const void *from, unsigned bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n\tcp.async.bulk.commit_group;" ::"l"(to),
                 "r"(address_of(from)), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void bulk_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// Multiples of 16 bytes of global memory to L2, some time.
__device__ __forceinline__ void bulk_prefetch(const void *from, unsigned bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// What was stored in shared memory one by one can be copied from now on, and the other way round. A fence of all memory
// would wait for what was stored to global memory.
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

#if CLUSTER > 1
#define TOGETHER __cluster_dims__(CLUSTER, 1, 1)
#else
#define TOGETHER
#endif
