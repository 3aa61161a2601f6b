// A user's program: schedules by hand, tunes into its own database, then serves the kernel through the runtime.
#include <nestor/nest.h>
#include <nestor/runtime.h>
#include <nestor/schedule.h>
#include <nestor/tune.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr int kRows = 24;
constexpr int kCols = 40;

void check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "failed: %s\n", what);
  std::exit(1);
}

/// y = A x, against the same sum in double.
void check_kernel(const nestor::Kernel& kernel) {
  std::vector<float> a(kRows * kCols), x(kCols), y(kRows, -1.0F);
  for (std::size_t k = 0; k < a.size(); ++k) a[k] = static_cast<float>(k % 13) - 6;
  for (std::size_t k = 0; k < x.size(); ++k) x[k] = static_cast<float>(k % 7) - 3;
  kernel.launch({{a.data()}, {x.data()}, {y.data()}}, {{"m", kRows}, {"k", kCols}});
  for (int i = 0; i < kRows; ++i) {
    double sum = 0;
    for (int j = 0; j < kCols; ++j) sum += static_cast<double>(a[i * kCols + j]) * x[j];
    check(std::abs(sum - y[i]) < 1e-3, "the kernel computes the product");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string database = argc > 1 ? argv[1] : "outside.db";
  const nestor::Nest nest = nestor::Nest::load("matvec", "f32");
  check(nestor::Nest::from_json(nest.json()).digest() == nest.digest(), "a nest survives its JSON");

  nestor::Schedule schedule(nest, {{"m", kRows}, {"k", kCols}});
  check(schedule.why_illegal("parallel(no_such_loop)").has_value(), "a step on an unknown loop is refused");
  bool refused = false;
  try {
    schedule.parallel("no_such_loop");
  } catch (const nestor::UserError&) {
    refused = true;
  }
  check(refused, "UserError crosses the library's border");
  check(schedule.measure().correct, "the original order is correct");

  nestor::TuneOptions options;
  options.sizes = {{"m", kRows}, {"k", kCols}};
  options.max_trials = 3;
  options.database = database;
  check(nestor::tune(nest, options.sizes, options).best_ms > 0, "tuning finds a kernel");

  const nestor::Library library = nestor::Library::open(database);
  const nestor::Kernel kernel = library.query("matvec", "f32", {{"m", kRows}, {"k", kCols}});
  check(static_cast<bool>(kernel) && kernel.match() == nestor::MatchKind::exact, "the tuned kernel is found");
  check_kernel(kernel);
  std::puts("outside program: done");
  return 0;
}
