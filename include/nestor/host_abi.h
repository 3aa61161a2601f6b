/* Calling convention of kernels compiled for the host CPU: plain C, stable, versioned. */
#ifndef NESTOR_HOST_ABI_H
#define NESTOR_HOST_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NESTOR_HOST_ABI_VERSION 1

/* One task of a parallel loop: `index` in [0, count); `scratch` is private to the calling thread during the call, at least
 * as large as asked for, 64-byte aligned. */
typedef void (*nestor_task)(void* closure, int64_t index, void* scratch);

/* Services that a kernel calls back. parallel_for returns when all tasks are done. */
typedef struct nestor_host_services {
  void* context;
  void (*parallel_for)(void* context, int64_t count, int64_t scratch_bytes, nestor_task task, void* closure);
} nestor_host_services;

/* A kernel. pointers[k]: first element of argument k, in recipe order. strides: for each argument in turn one entry an index,
 * outermost first, in elements. sizes and scalars: in recipe order (scalars are converted to their own type inside).
 * workspace: recipe.workspace_bytes bytes, 64-byte aligned. */
typedef void (*nestor_host_kernel)(void* const* pointers, const int64_t* strides, const int64_t* sizes, const double* scalars,
                                   void* workspace, const nestor_host_services* services);

#ifdef __cplusplus
}
#endif
#endif
