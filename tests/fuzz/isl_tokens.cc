// isl leaks tokens when its parser refuses a text ("[n] -> { and 0 <= j < n }": one token and what it holds); that is isl's own, and
// known. Tokens alone are left out of the search for leaks: a suppression by name would need slow stacks, or cover all that isl allocates.
#include <cstddef>
#include <cstdint>

#ifndef NESTOR_ISL_ARCHIVE
#include <dlfcn.h>
#endif

extern "C" {
void __attribute__((weak)) __lsan_ignore_object(const void* object);

#ifdef NESTOR_ISL_ARCHIVE

void* isl_token_new(void* context, int line, int column, unsigned on_new_line);
void* isl_stream_next_token_on_same_line(void* stream);
void* __real_isl_malloc_or_die(void* context, std::size_t bytes);

/// isl's own (--wrap). The compiler has put isl_token_new into its callers: a token is what the code of the scanner asks for, which lies
/// between these two functions. Else only a stream is made there.
void* __wrap_isl_malloc_or_die(void* context, std::size_t bytes) {
  void* object = __real_isl_malloc_or_die(context, bytes);
  const auto caller = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  const bool by_scanner = caller > reinterpret_cast<std::uintptr_t>(&isl_token_new) &&
                          caller < reinterpret_cast<std::uintptr_t>(&isl_stream_next_token_on_same_line);
  if (object != nullptr && by_scanner && __lsan_ignore_object != nullptr) __lsan_ignore_object(object);
  return object;
}

#else

/// isl's own, with its signature: the library calls it through its table of symbols, so this one comes first.
__attribute__((visibility("default"))) void* isl_token_new(void* context, int line, int column, unsigned on_new_line) {
  using Function = void* (*)(void*, int, int, unsigned);
  static const auto kOriginal = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "isl_token_new"));
  void* token = kOriginal(context, line, column, on_new_line);
  if (token != nullptr && __lsan_ignore_object != nullptr) __lsan_ignore_object(token);
  return token;
}

#endif
}
