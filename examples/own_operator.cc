// An operator of one's own: written in Halide, scheduled by hand, then tuned. Usage: own_operator [trials] [database]
#include <nestor/halide.h>
#include <nestor/schedule.h>
#include <nestor/tune.h>

#include <cstdlib>
#include <iostream>
#include <string>

namespace {

/// Squared distances between all pairs of two sets of points: out(j, i) = sum over c of (a(c, i) - b(c, j))^2.
nestor::HalideDefinition pair_distances() {
  Halide::Param<int> rows("rows"), cols("cols"), dims("dims");
  Halide::ImageParam a(Halide::Float(32), 2, "a"), b(Halide::Float(32), 2, "b");
  Halide::Var i("i"), j("j");
  Halide::RDom c(0, dims, "c");
  Halide::Func out("out");
  const Halide::Expr difference = a(c, i) - b(c, j);
  out(j, i) = 0.0f;
  out(j, i) += difference * difference;

  nestor::HalideDefinition definition;
  definition.op = "pair_distances";
  definition.variant = "f32";
  definition.outputs = {{out, {cols, rows}}};
  definition.inputs = {{a, {dims, rows}}, {b, {dims, cols}}};
  for (const Halide::Param<int>& size : {rows, cols, dims}) {
    nestor::HalideSize named;
    named.param = size;
    named.default_value = 256;
    definition.sizes.push_back(named);
  }
  return definition;
}

void schedule_by_hand(const nestor::Nest& nest) {
  nestor::Schedule schedule(nest);
  std::cout << "as defined:\n" << schedule.str();
  if (const auto reason = schedule.why_illegal("parallel(out.c)")) std::cout << "\nwhy not parallel(out.c)?\n" << *reason << "\n";

  schedule.compute_at("out_init", "out.i").parallel("out.i");
  std::cout << "\nby hand:\n" << schedule.str();
  const nestor::Measurement measured = schedule.measure();
  std::cout << (measured.correct ? "correct, " + std::to_string(measured.median_ms) + " ms\n" : measured.failure + "\n");
}

void tune(const nestor::Nest& nest, int trials, const std::string& database) {
  nestor::TuneOptions options;
  options.max_trials = trials;
  options.database = database;
  const nestor::TuneReport report = nestor::tune(nest, {}, options);
  std::cout << "\ntuned: " << report.baseline_ms << " ms to " << report.best_ms << " ms in " << report.trials << " trials\n"
            << report.best_schedule << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const nestor::Nest nest = nestor::extract_nest(pair_distances());
    std::cout << nest.str() << "\n";
    schedule_by_hand(nest);
    tune(nest, argc > 1 ? std::atoi(argv[1]) : 50, argc > 2 ? argv[2] : "");
  } catch (const nestor::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
