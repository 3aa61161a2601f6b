// A user's program: an operator from Halide, as JSON and as a file, tuned and served; and what is refused on the way.
#include <nestor/halide.h>
#include <nestor/runtime.h>
#include <nestor/schedule.h>
#include <nestor/tune.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

namespace {

constexpr int kRows = 6;
constexpr int kWidth = 20;

void check(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "failed: %s\n", what.c_str());
  std::exit(1);
}

void check_refused(const std::function<void()>& action, const std::string& part) {
  std::string message = "(accepted)";
  try {
    action();
  } catch (const nestor::UserError& error) {
    message = error.what();
  }
  check(message.find(part) != std::string::npos, "'" + part + "' is in: " + message);
}

/// out(row, c) = factor * x(row, c) + the sum of the row.
nestor::HalideDefinition definition(bool with_sizes) {
  Halide::Param<int> rows("rows"), width("width");
  Halide::Param<float> factor("factor");
  Halide::ImageParam x(Halide::Float(32), 2, "x");
  Halide::Var c("c"), i("i");
  Halide::RDom r(0, width, "r");
  Halide::Func sum("sum"), out("out");
  sum(i) = 0.0f;
  sum(i) += x(r, i);
  out(c, i) = factor * x(c, i) + sum(i);

  nestor::HalideDefinition definition;
  definition.op = "outside_rows";
  definition.variant = "f32";
  definition.outputs = {{out, {width, rows}}};
  definition.inputs = {{x, {width, rows}}};
  if (with_sizes) definition.sizes = {{rows, 64}, {width, 64}};
  definition.scalars = {{factor, 3.0}};
  return definition;
}

/// Every way of handing a nest over gives the same nest.
void check_ways(const nestor::Nest& nest) {
  check(nest.op() == "outside_rows" && nest.sizes().size() == 2 && nest.sizes()[0].default_value == 64, "names and sizes arrive");
  check(nest.tensors().front().name == "x" && nest.tensors().front().type == nestor::ElementType::f32, "tensors arrive");
  const std::string path = "./outside_rows.nest.json";
  std::ofstream(path) << nest.json();
  check(nestor::Nest::load(path).digest() == nest.digest(), "the nest survives its file");
  check(nestor::Nest::from_json(nest.json()).digest() == nest.digest(), "the nest survives its JSON");
  const nestor::api::Nest same = nest;  // the older name
  check(same.digest() == nest.digest(), "nestor::api::Nest is nestor::Nest");
}

void check_refusals(const nestor::Nest& nest) {
  check_refused([] { nestor::extract_nest(definition(false)); }, "'width'");
  check_refused([&] { nestor::tune(nest, {{"colums", 3}}); }, "colums");
  nestor::TuneOptions options;
  options.sizes = {{"rows", 7}};
  check_refused([&] { nestor::tune(nest, {{"rows", kRows}}, options); }, "name it once");
  check_refused([&] { nestor::Schedule(nest).measure({.target = "tpu"}); }, "'tpu' is no device");
  check_refused([&] { nestor::Schedule(nest).measure({.target = "cuda:64"}); }, "there is no");
}

void check_kernel(const nestor::Kernel& kernel) {
  std::vector<float> x(kRows * kWidth), out(x.size(), -1.0F);
  for (std::size_t k = 0; k < x.size(); ++k) x[k] = static_cast<float>(k % 11) - 5;
  kernel.launch({{x.data()}, {out.data()}}, {{"rows", kRows}, {"width", kWidth}}, {{"factor", 0.5}});
  for (int i = 0; i < kRows; ++i) {
    double sum = 0;
    for (int c = 0; c < kWidth; ++c) sum += x[i * kWidth + c];
    for (int c = 0; c < kWidth; ++c)
      check(std::abs(0.5 * x[i * kWidth + c] + sum - out[i * kWidth + c]) < 1e-3, "the kernel computes the definition");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const nestor::Nest nest = nestor::extract_nest(definition(true));
  check_ways(nest);
  check_refusals(nest);

  nestor::TuneOptions options;
  options.max_trials = 3;
  options.database = argc > 1 ? argv[1] : "outside_halide.db";
  check(nestor::tune(nest, {{"rows", kRows}, {"width", kWidth}}, options).best_ms > 0, "tuning finds a kernel");
  const nestor::Library library = nestor::Library::open(options.database);
  const nestor::Kernel kernel = library.query("outside_rows", "f32", {{"rows", kRows}, {"width", kWidth}});
  check(static_cast<bool>(kernel) && kernel.match() == nestor::MatchKind::exact, "the tuned kernel is found");
  check_kernel(kernel);
  std::puts("outside program with Halide: done");
  return 0;
}
