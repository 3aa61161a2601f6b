// What `nestor` returns to the shell; documented in docs/cli.md and in `nestor --help`.
#pragma once

namespace nestor::cli {

enum ExitCode : int {
  kOk = 0,
  kUserError = 1,      ///< bad input: the message says what would be right
  kInternalError = 2,  ///< a bug in nestor
  kNoKernel = 3,       ///< no kernel for what was asked
  kDeviceError = 4,    ///< the device or its driver failed
  kCheckFailed = 5,    ///< verify or db check found something wrong
  kInterrupted = 130,  ///< Ctrl-C; everything measured so far is stored
};

}  // namespace nestor::cli
