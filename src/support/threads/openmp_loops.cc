// Loops by teams.
#include "support/threads/openmp_loops.h"

#include "support/system/openmp_runtime.h"
#include "support/threads/task_loop.h"

#include <algorithm>
#include <deque>
#include <mutex>

namespace nestor {

struct OpenMpLoops::Impl {
  nestor_host_services services{};
  std::deque<TaskSlot> slots;  // by the thread's number in its team
  std::mutex turn;
  TaskLoop loop;

  void run(const TaskLoop::Job& job) {
    const OpenMpRuntime* runtime = openmp_runtime();
    const std::lock_guard lock(turn);
    const int most = runtime == nullptr ? 1 : std::min(static_cast<int>(slots.size()), runtime->max_threads());
    loop.begin(job, most);
    if (most <= 1 || job.count == 1) return loop.run(slots[0]);
    const auto body = [](void* data) {
      Impl& self = *static_cast<Impl*>(data);
      self.loop.run(self.slots[openmp_runtime()->thread_number()]);
    };
    runtime->parallel(body, this, static_cast<unsigned>(most), 0);
  }
};

OpenMpLoops::OpenMpLoops(int threads) : impl_(std::make_unique<Impl>()) {
  impl_->slots.resize(static_cast<std::size_t>(std::max(threads, 1)));
  impl_->services.context = impl_.get();
  impl_->services.parallel_for = [](void* context, std::int64_t count, std::int64_t scratch_bytes, nestor_task task,
                                    void* closure) {
    if (count <= 0) return;
    const TaskLoop::Job job{count, scratch_bytes, task, closure};
    if (!TaskLoop::run_within_task(job)) static_cast<Impl*>(context)->run(job);
  };
}

OpenMpLoops::~OpenMpLoops() = default;

const nestor_host_services* OpenMpLoops::services() const { return openmp_runtime() == nullptr ? nullptr : &impl_->services; }

}  // namespace nestor
