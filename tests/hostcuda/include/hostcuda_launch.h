/* The host's form of a kernel launch: src/device/cuda/kernels/launch.cuh. */
#ifndef HOSTCUDA_LAUNCH_H
#define HOSTCUDA_LAUNCH_H

#include "hostcuda.h"
#include <tuple>
#include <utility>

/* Made by the linker where a kernel has static shared memory (hostcuda.mk renames its sections). */
extern "C" char __start_hostcuda_shared[] __attribute__((weak, visibility("hidden")));
extern "C" char __stop_hostcuda_shared[] __attribute__((weak, visibility("hidden")));

namespace hostcuda {

template <class... P> struct arguments {
    void (*kernel)(P...);
    std::tuple<P...> values;

    template <size_t... I> void call(std::index_sequence<I...>) { kernel(std::get<I>(values)...); }
    static void thread(void *self) {
        static_cast<arguments *>(self)->call(std::index_sequence_for<P...>());
    }
    static void release(void *self) { delete static_cast<arguments *>(self); }
};

template <class... P, class... A>
cudaError_t launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block,
                   size_t shared_bytes, cudaStream_t stream, A &&...args) {
    static_assert(sizeof...(P) == sizeof...(A), "the kernel takes another number of arguments");
    using list = arguments<P...>;
    const hostcuda_kernel_t work = {
        name,
        reinterpret_cast<const void *>(kernel),
        list::thread,
        list::release,
        new list{kernel, std::tuple<P...>(static_cast<P>(std::forward<A>(args))...)},
        __start_hostcuda_shared,
        __stop_hostcuda_shared,
    };
    return hostcuda_launch(&work, grid, block, shared_bytes, stream);
}

} // namespace hostcuda

#endif
