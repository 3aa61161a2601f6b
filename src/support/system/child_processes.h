// Processes that were forked to compute something: none is waited for without end, none outlives its parent.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <vector>

namespace nestor {

/// In a new process: it ends when `parent`, which forked it, ends. Ends it at once where that happened already.
void end_with_parent(pid_t parent);

/// Whether all of them exited with 0 within that time, and before `stop` was set. Those that did not, because somebody stopped them, for
/// instance, are killed.
bool wait_for_children(std::vector<pid_t> children, double seconds, const std::atomic<bool>* stop = nullptr);

}  // namespace nestor
