// The parts of a tensor plan's proof (tensor_check.h) and what they share.
#pragma once

#include "codegen/gpu/mma/pipeline/tensor_roles.h"
#include "codegen/gpu/mma/plan/tensor_plan.h"
#include "codegen/tile/analysis/bound_space.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace nestor::nvptx {

struct TensorProof {
  TensorProof(const TensorPlan& of, BoundAnswers& known) : plan(of), bounds(of.program->valid, known) {}

  const TensorPlan& plan;
  BoundSpace bounds;
  Role producer, consumer;
  std::vector<OpPlace> places;   ///< of ops
  std::vector<OpPlace> counted;  ///< the same, where loops that go past tiles count those that are left
  std::vector<std::string> violations;

  template <class... Args>
  void fail(fmt::format_string<Args...> format, Args&&... args) {
    const std::string text = fmt::format(format, std::forward<Args>(args)...);
    for (const std::string& known : violations) {
      if (known == text) return;
    }
    violations.push_back(text);
  }
  /// Who copies: with mma, all threads do both.
  const Role& copier() const { return plan.cores == TensorCores::wgmma ? producer : consumer; }
  const CircularBuffer& ring(int k) const { return plan.circular_buffers[static_cast<std::size_t>(k)]; }
  const TensorOp& op(int k) const { return plan.ops[static_cast<std::size_t>(k)]; }
  std::string name(int ring) const {
    return fmt::format("circular buffer {} ({})", ring,
                       this->ring(ring).scheduler ? "work tiles" : plan.buffer(this->ring(ring).buffer).name);
  }
};

void prove_visits(TensorProof& proof);  ///< 11. Counts the iterations of such loops, of which nothing is known, from here on
void prove_shape(
    TensorProof&
        proof);  ///< events name circular buffers and ops that exist, bounds are the same in all warpgroups, stages do not overlap
void prove_sharing(TensorProof& proof);       ///< 6.
void prove_operands(TensorProof& proof);      ///< circular buffers hold the tiles that their ops read
void prove_rows(TensorProof& proof);          ///< rows of tiles are rows of what products read and stores write
void prove_blocks(TensorProof& proof);        ///< 1. and the structural part of 3. and 4.
void prove_tiles(TensorProof& proof);         ///< 2.
void prove_copies(TensorProof& proof);        ///< 3. and 4. of copies by all threads
void prove_order(TensorProof& proof);         ///< 5.
void prove_memory(TensorProof& proof);        ///< 10.
void prove_values(TensorProof& proof);        ///< 8.
void prove_column_tests(TensorProof& proof);  ///< 9.

}  // namespace nestor::nvptx
