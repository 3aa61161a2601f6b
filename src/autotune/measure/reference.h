// Reference: evaluates a nest's definition in double at given sizes, whole or backwards from single elements.
#pragma once

#include "autotune/measure/index_code.h"
#include "autotune/measure/oracle.h"
#include "autotune/measure/value_code.h"
#include "poly/nest.h"

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace nestor {

/// Doubles in lazily touched zero pages; an element that was never written is unknown.
class LazyDoubles {
 public:
  LazyDoubles() = default;
  explicit LazyDoubles(std::int64_t count);
  ~LazyDoubles();
  LazyDoubles(LazyDoubles&& other) noexcept;
  LazyDoubles& operator=(LazyDoubles&& other) noexcept;
  bool known(std::int64_t k) const { return data_[k] != 0; }
  double get(std::int64_t k) const { return std::bit_cast<double>(data_[k] ^ kKey); }
  void set(std::int64_t k, double value) { data_[k] = std::bit_cast<std::uint64_t>(value) ^ kKey; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  /// A NaN that no arithmetic produces stands for "unknown", stored as zero: the fresh pages of the system.
  static constexpr std::uint64_t kKey = 0x7ff4dead0badbeefULL;
  std::uint64_t* data_ = nullptr;
  std::int64_t count_ = 0;
};

/// An affine function of a statement's dims; most are linear, and then cost one multiply-add a dim.
struct DimFunction {
  IndexExpr expr;
  bool linear = false;
  std::vector<std::int64_t> factors;  ///< one a dim, when linear
  std::int64_t constant = 0;
  std::int64_t at(const std::int64_t* dims) const;
};

struct CompiledAccess {
  int tensor = -1;
  std::vector<DimFunction> index;
  DimFunction address;             ///< linear element number; `linear` only when every index is
  std::optional<IndexExpr> guard;  ///< the access exists only where this holds
  std::int64_t at(const std::int64_t* dims, const std::vector<std::int64_t>& strides) const;
};

struct CompiledStatement {
  std::string name;
  int group = 0;
  int dims = 0;
  ValueCode value;
  CompiledAccess write;
  std::vector<CompiledAccess> reads;
  std::vector<DimFunction> indices;
  std::optional<ReductionOp> reduction;
  std::vector<bool> self_dependent;  ///< by dim: reads what other iterations of this dim alone write
  double points = 0;                 ///< of the bounding box of the domain
};

class Reference {
 public:
  /// `inputs` must outlive the object. `scalars`: missing ones take the nest's default.
  Reference(const Nest& nest, const Sizes& sizes, const std::map<std::string, double>& scalars, const HostTensors& inputs);

  /// Elementary evaluations that evaluate_all takes, about.
  double full_cost() const;
  /// False when elements are overwritten or depend on statements of their own group: only evaluate_all gives them then.
  bool backward_possible() const { return backward_possible_; }
  /// Runs every statement in the original order. Throws UserError beyond `cost_limit` or too much memory.
  void evaluate_all(double cost_limit);
  /// Final value of an element; nothing when no statement writes it. Throws UserError when `cost_limit` (over all calls) is exceeded.
  std::optional<double> value(const std::string& tensor, std::int64_t linear, double cost_limit);
  const std::vector<std::int64_t>& shape(const std::string& tensor) const;
  double spent() const { return spent_; }

 private:
  struct Store {
    std::string name;
    ElementType type = ElementType::f32;
    std::vector<std::int64_t> shape, strides;
    std::int64_t elements = 1;
    const std::byte* input = nullptr;
    std::vector<int> writers;           ///< statements, in textual order
    std::vector<LazyDoubles> versions;  ///< by number of writers done; full evaluation uses the last one
  };
  struct ElementLoops {
    LoopCode code;
    int slots = 0;
  };
  class Leaves;
  using Sink = std::function<void(int statement, const std::int64_t* dims, const std::vector<std::int64_t>& strides, int count)>;

  void compile_statement(const Statement& statement, const Nest& nest, const Sizes& sizes);
  int version_seen(int statement, int tensor) const;
  const ElementLoops& element_loops(int statement);
  void finish_loops(LoopCode& code, bool whole) const;
  void walk(const LoopCode& code, std::int64_t* frame, const Sink& sink);
  void call(const LoopCode& statement, std::int64_t* frame, const std::vector<std::int64_t>& strides, int count,
            const Sink& sink);
  const double* evaluate_chunk(int statement, const std::int64_t* dims, const std::vector<std::int64_t>& strides, int count,
                               bool whole);
  std::optional<double> compute(int tensor, int version, std::int64_t linear);
  void store_chunk(int statement, const std::int64_t* dims, const std::vector<std::int64_t>& strides, int count);
  LazyDoubles& version_of(int tensor, int version);

  std::vector<Store> stores_;
  std::map<std::string, int> store_index_;
  std::vector<CompiledStatement> statements_;
  std::vector<isl::set> domains_;  ///< sizes fixed
  std::vector<isl::map> writes_;   ///< sizes fixed
  std::map<int, ElementLoops> element_loops_;
  std::map<std::string, double> scalars_;
  bool backward_possible_ = true;
  double spent_ = 0;
  double limit_ = 0;
  int depth_ = 0;
  std::vector<std::unique_ptr<std::vector<double>>> registers_;  ///< one a level of recursion
};

}  // namespace nestor
