// Data for a GPU: what a process of its own finds comes back whole, here and in processes that were forked before.
#include "autotune/gpu/gpu_data.h"
#include "support/nests/sample_nests.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace nestor {
namespace {

void expect_same(const std::vector<OracleSample>& found, const std::vector<OracleSample>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t k = 0; k < found.size(); ++k) {
    EXPECT_EQ(found[k].tensor, wanted[k].tensor);
    EXPECT_EQ(found[k].linear, wanted[k].linear);
    EXPECT_EQ(found[k].value, wanted[k].value);
    EXPECT_EQ(found[k].bound, wanted[k].bound);
  }
}

TEST(GpuData, ReferenceValuesComeBackWhole) {
  const TrialProblem problem = trial_problem(samples::seidel(), {{"T", 3}, {"Y", 7}, {"X", 9}});
  const MeasureOptions options;
  GpuData data(problem, options);
  ASSERT_EQ(data.sets(), 2U) << "small arguments are made twice";
  // A device's process is there before the values are.
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    char word = 0;
    _exit(read(ready[0], &word, 1) == 1 && !data.samples(1).samples.empty() ? 0 : 1);
  }
  while (!data.complete()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_EQ(write(ready[1], "x", 1), 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  for (std::size_t set = 0; set < data.sets(); ++set) {
    EXPECT_TRUE(data.samples(set).left_out.empty());
    expect_same(data.samples(set).samples, reference_samples(problem.definition, problem.sizes, {}, data.tensors(set),
                                                             options.oracle_samples, options.data_seed + set));
  }
  for (const int end : ready) close(end);
}

}  // namespace
}  // namespace nestor
