/* C API of libnestor_runtime: look up the best known kernel for an operator at given sizes, and launch it.
 *
 * Every function that returns a nestor_status leaves its message in nestor_last_error() unless the status is NESTOR_OK.
 * All functions may be called from several threads at once, nestor_close() alone apart. */
#ifndef NESTOR_NESTOR_H
#define NESTOR_NESTOR_H

#include "nestor/export.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header; nestor_version() tells that of the library. */
#define NESTOR_VERSION_MAJOR 0
#define NESTOR_VERSION_MINOR 1
#define NESTOR_VERSION_PATCH 0
#define NESTOR_VERSION (NESTOR_VERSION_MAJOR * 10000 + NESTOR_VERSION_MINOR * 100 + NESTOR_VERSION_PATCH)

typedef enum nestor_status {
  NESTOR_OK = 0,
  NESTOR_NOT_FOUND = 1,     /* no kernel fits what was asked */
  NESTOR_USER_ERROR = 2,    /* bad input: nothing was done */
  NESTOR_DEVICE_ERROR = 3,  /* the device or its driver failed */
  NESTOR_INTERNAL_ERROR = 4 /* a bug in Nestor, or no memory */
} nestor_status;

typedef enum nestor_match {
  NESTOR_MATCH_EXACT = 0,        /* measured on this device at these sizes */
  NESTOR_MATCH_NEAREST = 1,      /* measured on this device at other sizes, valid for these */
  NESTOR_MATCH_OTHER_DEVICE = 2, /* measured on another device */
  NESTOR_MATCH_NONE = 3
} nestor_match;

typedef enum nestor_type {
  NESTOR_F32 = 0,
  NESTOR_F16 = 1,
  NESTOR_BF16 = 2,
  NESTOR_I32 = 3,
  NESTOR_BOOL = 4, /* one byte: 0 or not */
  NESTOR_I64 = 5,
  NESTOR_ANY_TYPE = -1 /* not checked */
} nestor_type;

typedef struct nestor_library nestor_library;
typedef struct nestor_kernel nestor_kernel; /* owned by its library; valid until nestor_close() */

typedef struct nestor_options {
  int32_t threads;         /* of a host kernel; 0: all CPUs this process may use */
  const char* system_path; /* system database; NULL: the default one; "": none */
} nestor_options;

typedef struct nestor_tensor {
  void* data;             /* first element */
  nestor_type type;       /* checked, unless NESTOR_ANY_TYPE */
  int32_t rank;           /* entries of shape and strides; not read when both are NULL */
  const int64_t* shape;   /* checked against the kernel's; NULL: not checked */
  const int64_t* strides; /* in elements, outermost first, the last 1; NULL: dense, row-major */
} nestor_tensor;

/* Opens a tuning database for reading. path NULL: $NESTOR_DB, else the user's default, else the system's. options may be NULL. */
NESTOR_API nestor_status nestor_open(const char* path, const nestor_options* options, nestor_library** library);

/* Whether records that nobody trusted signed are served, too (not 0), or not (0; the default, unless $NESTOR_ALLOW_UNSIGNED is 1). A
 * record holds native code that runs in this process. Served without are records that come with Nestor, that the user's own key signed,
 * which `nestor tune` does, or a key that the user trusts (`nestor db trust`). Kernels in use stay valid. */
NESTOR_API nestor_status nestor_allow_unsigned(nestor_library* library, int32_t allowed);

/* Frees the library and all its kernels. NULL is allowed. */
NESTOR_API void nestor_close(nestor_library* library);

/* Best known kernel for an operator, its variant (element types, e.g. "f32") and sizes on a device: "host", "cuda" (the first
 * GPU), "cuda:1", ...
 * NESTOR_NOT_FOUND and *kernel NULL when none fits. */
NESTOR_API nestor_status nestor_query(nestor_library* library, const char* op, const char* variant, const char* device,
                                      int32_t size_count, const char* const* size_names, const int64_t* size_values,
                                      nestor_kernel** kernel);

/* The same for exactly the nest with this digest: 32 digits, as the JSON of nestor_kernel_info() has it. Of two definitions with one
 * name, nestor_query() takes kernels of either. */
NESTOR_API nestor_status nestor_query_nest(nestor_library* library, const char* digest, const char* device, int32_t size_count,
                                           const char* const* size_names, const int64_t* size_values, nestor_kernel** kernel);

/* How well the kernel fits; distance: sum over sizes of |log2(asked / measured)|; json: its tensors, sizes, scalars and
 * conditions. Any of the three may be NULL; the text lives as long as the kernel. */
NESTOR_API nestor_status nestor_kernel_info(const nestor_kernel* kernel, nestor_match* match, double* distance,
                                            const char** json);

/* Runs the kernel: on the host, returns when it is done; on a GPU, puts it into the legacy default stream and returns at
 * once. Tensors in the order of the JSON; scalars that are not given take their default. Nothing is written unless all
 * arguments fit. */
NESTOR_API nestor_status nestor_launch(const nestor_kernel* kernel, int32_t tensor_count, const nestor_tensor* tensors,
                                       int32_t size_count, const char* const* size_names, const int64_t* size_values,
                                       int32_t scalar_count, const char* const* scalar_names, const double* scalar_values);

/* As nestor_launch, in a stream of the kernel's GPU: a CUstream or cudaStream_t; NULL: the legacy default stream. Does not
 * wait, and can be captured into a CUDA graph. stream must be NULL for a kernel of the host. */
NESTOR_API nestor_status nestor_launch_stream(const nestor_kernel* kernel, int32_t tensor_count, const nestor_tensor* tensors,
                                              int32_t size_count, const char* const* size_names, const int64_t* size_values,
                                              int32_t scalar_count, const char* const* scalar_names, const double* scalar_values,
                                              void* stream);

/* As nestor_launch_stream, for callers who know where their tensors lie: the driver is not asked whether each is memory of
 * the kernel's GPU, which saves part of a microsecond. All other checks are made. */
NESTOR_API nestor_status nestor_launch_trusted(const nestor_kernel* kernel, int32_t tensor_count, const nestor_tensor* tensors,
                                               int32_t size_count, const char* const* size_names, const int64_t* size_values,
                                               int32_t scalar_count, const char* const* scalar_names, const double* scalar_values,
                                               void* stream);

/* Forgets remembered answers, so that what was tuned since is found; kernels in use stay valid. */
NESTOR_API nestor_status nestor_refresh(nestor_library* library);

/* The library's version: "0.1.0", and as NESTOR_VERSION has it. May be called at any time. */
NESTOR_API const char* nestor_version(void);
NESTOR_API int32_t nestor_version_number(void);

/* Message of this thread's last call that failed; "" when there is none. Valid until the thread's next call. */
NESTOR_API const char* nestor_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
