/* The C API as a C program uses it. Returns NULL, or what is wrong. */
#include "nestor/nestor.h"

#include <stddef.h>
#include <string.h>

#define REQUIRE(condition)               \
  do {                                   \
    if (!(condition)) return #condition; \
  } while (0)

static const char* const kNames[] = {"rows", "cols"};

static const char* check_launches(nestor_kernel* kernel) {
  float x[4 * 8], y[4 * 8], wide[4 * 10];
  const int64_t values[] = {4, 8}, shape[] = {4, 8}, strides[] = {10, 1};
  const char* const scalar_names[] = {"alpha"};
  const double scalar_values[] = {3.0};
  nestor_tensor tensors[2];
  int k;
  for (k = 0; k < 32; ++k) x[k] = (float)k;
  for (k = 0; k < 40; ++k) wide[k] = -1;
  memset(y, 0, sizeof(y));
  memset(tensors, 0, sizeof(tensors));
  tensors[0].data = x;
  tensors[0].type = NESTOR_F32;
  tensors[0].rank = 2;
  tensors[0].shape = shape;
  tensors[1].data = y;
  tensors[1].type = NESTOR_ANY_TYPE;
  REQUIRE(nestor_launch(kernel, 2, tensors, 2, kNames, values, 0, NULL, NULL) == NESTOR_OK);
  REQUIRE(y[31] == 62);
  REQUIRE(nestor_launch(kernel, 2, tensors, 2, kNames, values, 1, scalar_names, scalar_values) == NESTOR_OK);
  REQUIRE(y[31] == 93);
  tensors[1].data = wide;
  tensors[1].rank = 2;
  tensors[1].strides = strides;
  REQUIRE(nestor_launch(kernel, 2, tensors, 2, kNames, values, 0, NULL, NULL) == NESTOR_OK);
  REQUIRE(wide[37] == 62 && wide[38] == -1);
  tensors[0].type = NESTOR_BF16;
  REQUIRE(nestor_launch(kernel, 2, tensors, 2, kNames, values, 0, NULL, NULL) == NESTOR_USER_ERROR);
  REQUIRE(strstr(nestor_last_error(), "holds f32, not bf16") != NULL);
  tensors[0].type = NESTOR_I64;
  REQUIRE(nestor_launch(kernel, 2, tensors, 2, kNames, values, 0, NULL, NULL) == NESTOR_USER_ERROR);
  REQUIRE(strstr(nestor_last_error(), "holds f32, not i64") != NULL);
  tensors[0].type = NESTOR_BOOL;
  REQUIRE(nestor_launch(kernel, 2, tensors, 2, kNames, values, 0, NULL, NULL) == NESTOR_USER_ERROR);
  REQUIRE(strstr(nestor_last_error(), "holds f32, not bool") != NULL);
  tensors[0].type = NESTOR_F32;
  tensors[0].rank = 2000000000;
  REQUIRE(nestor_launch(kernel, 2, tensors, 2, kNames, values, 0, NULL, NULL) == NESTOR_USER_ERROR);
  REQUIRE(strstr(nestor_last_error(), "of 2 indices, not one of 2000000000") != NULL);
  tensors[0].rank = -2000000000;
  REQUIRE(nestor_launch(kernel, 2, tensors, 2, kNames, values, 0, NULL, NULL) == NESTOR_USER_ERROR);
  tensors[0].rank = 2;
  tensors[1].rank = 2000000000;
  REQUIRE(nestor_launch(kernel, 2, tensors, 2, kNames, values, 0, NULL, NULL) == NESTOR_USER_ERROR);
  REQUIRE(strstr(nestor_last_error(), "but 2000000000 strides are given") != NULL);
  tensors[1].rank = 2;
  tensors[0].type = (nestor_type)77;
  REQUIRE(nestor_launch(kernel, 2, tensors, 2, kNames, values, 0, NULL, NULL) == NESTOR_USER_ERROR);
  REQUIRE(nestor_launch(kernel, 2, NULL, 2, kNames, values, 0, NULL, NULL) == NESTOR_USER_ERROR);
  REQUIRE(nestor_launch(kernel, -1, tensors, 2, kNames, values, 0, NULL, NULL) == NESTOR_USER_ERROR);
  REQUIRE(nestor_launch(kernel, 2, tensors, 2, NULL, values, 0, NULL, NULL) == NESTOR_USER_ERROR);
  REQUIRE(nestor_launch(NULL, 2, tensors, 2, kNames, values, 0, NULL, NULL) == NESTOR_USER_ERROR);
  REQUIRE(strstr(nestor_last_error(), "kernel is NULL") != NULL);
  return NULL;
}

static const char* check_queries(nestor_library* library) {
  const int64_t measured[] = {4, 8}, near[] = {8, 8}, invalid[] = {4, 7}, zero[] = {0, 8};
  nestor_kernel *kernel = NULL, *again = NULL;
  nestor_match match = NESTOR_MATCH_NONE;
  double distance = -1;
  const char* json = NULL;
  const char* failure;
  REQUIRE(nestor_query(library, "scale", "f32", "host", 2, kNames, near, &kernel) == NESTOR_OK);
  REQUIRE(nestor_kernel_info(kernel, &match, &distance, &json) == NESTOR_OK);
  REQUIRE(match == NESTOR_MATCH_NEAREST && distance == 1 && strstr(json, "\"tensors\"") != NULL);
  REQUIRE(nestor_query(library, "scale", "f32", "host", 2, kNames, measured, &kernel) == NESTOR_OK);
  REQUIRE(nestor_kernel_info(kernel, &match, NULL, NULL) == NESTOR_OK && match == NESTOR_MATCH_EXACT);
  failure = check_launches(kernel);
  if (failure != NULL) return failure;
  REQUIRE(nestor_query(library, "scale", "f32", "host", 2, kNames, invalid, &again) == NESTOR_NOT_FOUND);
  REQUIRE(again == NULL && strstr(nestor_last_error(), "nestor tune") != NULL);
  REQUIRE(nestor_query(library, "scale", "f32", "host", 2, kNames, zero, &again) == NESTOR_USER_ERROR);
  REQUIRE(nestor_query_nest(library, "0123456789abcdef0123456789abcdef", "host", 2, kNames, near, &again) == NESTOR_NOT_FOUND);
  REQUIRE(again == NULL && strstr(nestor_last_error(), "no kernel of the nest 0123456789abcdef0123456789abcdef for host") != NULL);
  REQUIRE(nestor_query_nest(library, "d1", "host", 2, kNames, near, &again) == NESTOR_USER_ERROR);
  REQUIRE(strstr(nestor_last_error(), "\"d1\" is no digest of a nest") != NULL);
  REQUIRE(nestor_query_nest(library, NULL, "host", 2, kNames, near, &again) == NESTOR_USER_ERROR);
  REQUIRE(nestor_query(library, "scale", "f32", "tpu", 2, kNames, measured, &again) == NESTOR_USER_ERROR);
  REQUIRE(strstr(nestor_last_error(), "tpu") != NULL);
  REQUIRE(nestor_query(library, NULL, "f32", "host", 2, kNames, measured, &again) == NESTOR_USER_ERROR);
  REQUIRE(nestor_query(library, "scale", "f32", "host", 2, kNames, measured, NULL) == NESTOR_USER_ERROR);
  REQUIRE(nestor_query(library, "scale", "f32", "host", 1000, kNames, measured, &again) == NESTOR_USER_ERROR);
  REQUIRE(nestor_query(NULL, "scale", "f32", "host", 2, kNames, measured, &again) == NESTOR_USER_ERROR);
  REQUIRE(nestor_refresh(library) == NESTOR_OK && nestor_refresh(NULL) == NESTOR_USER_ERROR);
  REQUIRE(nestor_query(library, "scale", "f32", "host", 2, kNames, measured, &again) == NESTOR_OK && again != NULL);
  REQUIRE(nestor_allow_unsigned(library, 1) == NESTOR_OK && nestor_allow_unsigned(NULL, 1) == NESTOR_USER_ERROR);
  return check_launches(kernel); /* still valid after the refresh */
}

const char* nestor_c_api_checks(const char* path, const char* missing_path) {
  nestor_library* library = NULL;
  nestor_options options;
  const char* failure;
  memset(&options, 0, sizeof(options));
  options.threads = 2;
  options.system_path = "";
  REQUIRE(nestor_open(missing_path, &options, &library) == NESTOR_USER_ERROR);
  REQUIRE(library == NULL && strstr(nestor_last_error(), missing_path) != NULL);
  REQUIRE(nestor_open(path, &options, NULL) == NESTOR_USER_ERROR);
  REQUIRE(nestor_open(path, &options, &library) == NESTOR_OK);
  failure = check_queries(library);
  nestor_close(library);
  nestor_close(NULL);
  return failure;
}
