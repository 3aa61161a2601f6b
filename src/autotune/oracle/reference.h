// Reference: evaluates a nest's definition in double at given sizes, whole or backwards from single elements.
#pragma once

#include "autotune/oracle/code/index_code.h"
#include "autotune/oracle/code/value_code.h"
#include "autotune/oracle/error_sum.h"
#include "autotune/oracle/group_order.h"
#include "autotune/oracle/rounding_model.h"
#include "autotune/tensors/host_tensor.h"
#include "autotune/tensors/zero_pages.h"
#include "poly/nest/nest.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace nestor {

class ProcessTeam;
struct ErrorsOfFactor;

/// Doubles in lazily touched zero pages; an element that was never written is unknown.
class LazyDoubles {
 public:
  LazyDoubles() = default;
  /// `shared`: forked processes see what others write. Whoever knows an element sees what was written before it.
  explicit LazyDoubles(std::int64_t count, bool shared = false) : bits_(count, shared) {}
  bool known(std::int64_t k) const { return __atomic_load_n(&bits_[k], __ATOMIC_ACQUIRE) != 0; }
  double get(std::int64_t k) const { return std::bit_cast<double>(__atomic_load_n(&bits_[k], __ATOMIC_RELAXED) ^ kKey); }
  void set(std::int64_t k, double value) {
    __atomic_store_n(&bits_[k], std::bit_cast<std::uint64_t>(value) ^ kKey, __ATOMIC_RELEASE);
  }
  explicit operator bool() const { return static_cast<bool>(bits_); }

 private:
  /// A NaN that no arithmetic produces stands for "unknown", stored as zero: the fresh pages of the system.
  static constexpr std::uint64_t kKey = 0x7ff4dead0badbeefULL;
  ZeroPages<std::uint64_t> bits_;
};

/// A value of the definition, and how far kernels may be off (infinite: by anything).
struct BoundedValue {
  double value = 0;
  double bound = 0;
};

/// An affine function of a statement's dims; most are linear, and then cost one multiply-add a dim.
struct DimFunction {
  IndexExpr expr;
  bool linear = false;
  std::vector<std::int64_t> factors;  ///< one a dim, when linear
  std::int64_t constant = 0;
  std::int64_t at(const std::int64_t* dims) const;
  /// At `count` points from `dims` on, `along` apart in each dim.
  void at(const std::int64_t* dims, const std::vector<std::int64_t>& along, int count, std::int64_t* out) const;
  /// When linear: from one of so many points to the next, `along` apart in each dim; 0 of a single one.
  std::int64_t step(const std::vector<std::int64_t>& along, int count) const;
};

struct CompiledAccess {
  int tensor = -1;
  std::vector<DimFunction> index;
  DimFunction address;             ///< linear element number; `linear` only when every index is
  std::optional<IndexExpr> guard;  ///< the access exists only where this holds
  std::int64_t at(const std::int64_t* dims, const std::vector<std::int64_t>& strides) const;
  /// Element numbers at `count` points from `dims` on, `along` apart in each dim; -1 where the access does not exist.
  void elements(const std::int64_t* dims, const std::vector<std::int64_t>& along, int count,
                const std::vector<std::int64_t>& strides, std::int64_t* out) const;
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
  ElementType type = ElementType::f32;  ///< of the value
  std::vector<bool> self_dependent;     ///< by dim: reads what other iterations of this dim alone write
  bool reads_others = false;            ///< reads what some other instance writes
  double points = 0;                    ///< of the bounding box of the domain
  double expanded = 0;                  ///< elementary evaluations of a point, temporaries of single points anew
  bool remembered = false;              ///< points, once evaluated: they take long, or many others read them
};

/// Elementary evaluations that the whole definition takes, about: prepared once, then cheap at many sizes.
class DefinitionCost {
 public:
  /// What a sum of products of two tensors counts for a term: its operations; or 1, as where neighbours are evaluated side by side.
  enum class Products : std::uint8_t { one_by_one, side_by_side };
  explicit DefinitionCost(const Nest& nest, Products products = Products::one_by_one);
  /// Of a value for every size; nothing where the nest does not admit these sizes.
  std::optional<double> at(const Sizes& sizes) const;

 private:
  struct Box {
    double nodes;                    ///< of the statement's value
    std::vector<IndexExpr> extents;  ///< of the box around its domain, by dim; functions of the sizes
  };
  std::vector<SizeParam> sizes_;
  IndexExpr context_;  ///< whether the sizes are admitted
  std::vector<Box> boxes_;
};

/// Of the first element of each output, with all that it needs, at one choice of sizes. Nothing where DefinitionCost has nothing.
std::optional<double> cost_of_first_elements(const Nest& nest, const Sizes& sizes);
/// The same of one output, where products are evaluated side by side.
std::optional<double> cost_of_first_element(const Nest& nest, const Sizes& sizes, const std::string& output);

/// Where an element lies, by dim.
std::array<std::int64_t, 64> coordinates_of(std::int64_t linear, const std::vector<std::int64_t>& strides);

/// Somebody set the stop flag.
struct EvaluationStopped {};

class Reference {
 public:
  /// `inputs` must outlive the object. `scalars`: missing ones take the nest's default.
  Reference(const Nest& nest, const Sizes& sizes, const std::map<std::string, double>& scalars, const HostTensors& inputs);

  /// Throws: the definition takes so many elementary evaluations, more than the limit.
  [[noreturn]] static void refuse_cost(double cost, double limit);

  /// Makes ready for copy_for(), which several threads may call then.
  void compile_all();
  /// One of the same sizes for other inputs, for evaluate_all alone: elements that nothing writes have no value.
  Reference copy_for(const HostTensors& inputs) const;
  /// Elementary evaluations that evaluate_all takes, about.
  double full_cost() const;
  /// What of it sums take that compute_products() computes.
  double cost_of_products() const;
  /// Does evaluate_all() keep to this limit, and to that of memory?
  bool can_evaluate_all(double cost_limit) const;
  /// False when elements are overwritten or depend on statements of their own group: only evaluate_all gives them then.
  bool backward_possible() const { return backward_possible_; }
  /// Runs every statement in the original order. Throws UserError beyond `cost_limit` or too much memory. Of more `processes` than one, which
  /// are forked where that is worth it, each takes a share of loops whose iterations are independent; values do not depend on who computes
  /// them. No other thread may run then.
  void evaluate_all(double cost_limit, int processes = 1);
  /// Do statements of a group read what the group writes, as steps of a recurrence do? They may amplify rounding without limit.
  bool recurrent() const { return recurrent_; }
  /// Runs every statement as evaluate_all() does, but rounds each value to f32, and terms whose operands may be rounded to 16 bits to those; sums
  /// term by term: what one kernel might compute. For value() alone.
  void evaluate_rounded(double cost_limit, int processes = 1);
  /// Final value of an element; nothing when no statement writes it. Throws UserError when `cost_limit` (over all calls) is exceeded.
  std::optional<double> value(const std::string& tensor, std::int64_t linear, double cost_limit);
  /// The same with what rounding may do to it.
  std::optional<BoundedValue> bounded_value(const std::string& tensor, std::int64_t linear, double cost_limit);
  /// Compiles what value() needs, once: forked processes have it then.
  void prepare_elements();

  /// An element of a tensor as its first so many writers leave it.
  struct Element {
    int tensor = -1, version = 0;
    std::int64_t linear = 0;
    auto operator<=>(const Element&) const = default;
  };
  /// Processes that are forked from now on remember elements together, and this one. False: there is no memory for that.
  bool share_elements();
  /// Elements along a tensor's last dim.
  std::int64_t row_length(int tensor) const { return stores_[tensor].shape.empty() ? 1 : stores_[tensor].shape.back(); }
  /// As all its writers leave it.
  Element final_element(const std::string& tensor, std::int64_t linear) const;
  bool known(const Element& element);
  /// Computes it, and so remembers what it needs. False where that takes more elementary evaluations, or goes wrong.
  bool compute_within(const Element& element, double most);
  /// Elements side by side from `first` on, 16 at most, that are sums of products of two tensors: all at once, without what other values
  /// need. False, and nothing is computed: they are something else, or take more elementary evaluations than `most`.
  bool compute_products(const Element& first, int count, double most);
  /// May it have needed() elements at all? Sums of inputs have none.
  bool needs_others(const Element& element);
  struct Needed {
    std::vector<Element> elements;
    bool complete = false;  ///< false: there may be others
  };
  /// Unknown elements that its value reads, directly or by cheap points that are evaluated anew; no more than about `most`. `chunks` of its
  /// points are passed over, as what they read is known by now; it becomes the number of those that have been looked at.
  Needed needed(const Element& element, std::size_t most, std::size_t& chunks);
  Needed needed(const Element& element, std::size_t most) {
    std::size_t none = 0;
    return needed(element, most, none);
  }

  /// What statements read of others and is remembered, in the order in which it can be computed: the last element of each such tensor.
  std::vector<Element> remembered_tensors();

  std::int64_t elements(const std::string& tensor) const { return stores_[store_index_.at(tensor)].elements; }
  const std::vector<std::int64_t>& shape(const std::string& tensor) const;
  double spent() const { return spent_; }
  /// From then on evaluation throws EvaluationStopped as soon as the flag is set.
  void stop_by(const std::atomic<bool>* stop) { stop_ = stop; }

 private:
  Reference() = default;
  /// What does not depend on the inputs.
  struct StoreForm {
    std::string name;
    ElementType type = ElementType::f32;
    std::vector<std::int64_t> shape, strides;
    std::int64_t elements = 1;
    double touched = 0;         ///< elements on pages that writers touch, about
    bool sums_16_bits = false;  ///< of a 16-bit type, and accumulated: kept as wide as kernels keep sums, rounded when read
    std::vector<int> writers;   ///< statements, in textual order
    bool reduced = false;       ///< a reduction writes it
    std::optional<ElementType> narrow;  ///< operands of its sums may be rounded to this type
    double orders = 1;                  ///< its sums may be made of others so many times larger (ErrorSum::error)
    double share = 0;                   ///< of the sum of |terms|, by which its sums may be off (ErrorSum::error)
  };
  struct Store : StoreForm {
    const std::byte* input = nullptr;
    std::vector<float> decoded;         ///< the input, where it is small
    std::vector<LazyDoubles> versions;  ///< by number of writers done; full evaluation uses the last one
    std::vector<LazyDoubles> errors;    ///< of these
    ZeroPages<ErrorSum> sums;           ///< full evaluation: errors where reductions write
  };
  struct ElementLoops {
    LoopCode code;
    int slots = 0;
    /// Dims of the one instance that writes an element, by its coordinates; empty where several may, or none.
    std::vector<DimFunction> instance;
    /// Of a reduction: the same of the few instances that add to an element, in order; empty where their number differs, or is large.
    std::vector<std::vector<DimFunction>> terms;
  };
  class Leaves;
  using Sink = std::function<void(int statement, const std::int64_t* dims, const std::vector<std::int64_t>& strides, int count)>;

  /// Elements of an input; 0 for the number -1.
  static void load_input(const Store& store, const std::int64_t* address, double* out, int count);
  static void set_input(Store& store, const HostTensors& inputs);
  double bytes_of_all() const;
  void compile_statement(const Statement& statement, const Nest& nest, const Sizes& sizes);
  int version_seen(int statement, int tensor) const;
  const ElementLoops& element_loops(int statement);
  isl::union_map order_of_group(std::size_t first, std::size_t last) const;
  void compile_groups();
  void finish_loops(LoopCode& code, bool whole) const;
  int own_dim(const LoopCode& code, const LoopCode& leaf, const std::vector<const LoopCode*>& leaves) const;
  void mark_parallel(LoopCode& code) const;
  Sink whole_sink();
  bool evaluate_together(int processes);
  bool share_tables(bool whole);
  void walk_together(const LoopCode& code, std::int64_t* frame, const Sink& sink, ProcessTeam& team);
  void walk(const LoopCode& code, std::int64_t* frame, const Sink& sink);
  void call(const LoopCode& statement, std::int64_t* frame, const std::vector<std::int64_t>& strides, int count,
            const Sink& sink);
  /// Values of some points, their errors, and those that come of rounding an operand to 16 bits (null: none).
  struct Chunk {
    const double *values, *errors, *operands;
  };
  Chunk evaluate_chunk(int statement, const std::int64_t* dims, const std::vector<std::int64_t>& strides, int count, bool whole);
  const double* operand_errors(int statement, const double* registers, const double* values, int count, double* out) const;
  double error_of(int tensor, int version, std::int64_t linear, bool whole);
  std::optional<double> compute(int tensor, int version, std::int64_t linear);
  struct Row {
    const std::int64_t* linear;
    int count;
    double *values, *errors;
  };
  enum class Known { none, some, all };
  /// A sum of products of two elements of tensors in f32, which start from a constant.
  struct ProductSum {
    int start = -1, sum = -1;  ///< statements
    int a = -1, b = -1;        ///< reads
    double operand = 0;        ///< what rounding an operand to 16 bits changes, of the product
  };
  std::optional<ProductSum> product_sum_of(const Element& element) const;
  static constexpr int kMostProducts = ErrorSum::kLanes;  ///< elements that compute_products() takes at once
  /// Elements first[row] + k step of a tensor, for `rows` rows and `count` values of k. Their place: row + lanes k.
  struct FactorPoints {
    std::array<std::int64_t, kMostProducts> first;
    int rows, lanes;
    std::int64_t step;
    int count;
  };
  /// A factor of sums side by side at the points of some chunks, `chunk` numbers for each.
  struct Factor {
    std::vector<std::int64_t> key;  ///< statement, read and points
    std::vector<double> values, errors;
    std::size_t chunk = 0;
  };
  struct ProductSums;
  bool find_terms(const Element& first, ProductSums& sums);
  std::vector<FactorPoints> factor_points(const ProductSums& sums, int read, std::size_t from, std::size_t to) const;
  /// An operand at these points. False: some of it is not known yet.
  bool load_factor(int statement, int read, const FactorPoints& points, double* values, double* errors);
  bool load_computed(int tensor, int version, const Row& row);
  bool add_products(const Element& first, ProductSums& sums);
  bool load_chunks(int statement, int read, const std::vector<FactorPoints>& chunks, Factor& factor);
  void add_special_products(ProductSums& sums, const ErrorsOfFactor& a, bool shared, const ErrorsOfFactor& b, int count);
  /// Statements that make single elements by themselves: with one instance, or with that (a start) and a few of a sum. -1: there is none.
  struct Makers {
    int start = -1, sum = -1;
    int last() const { return sum >= 0 ? sum : start; }
  };
  Makers makers_of(int tensor, int version);
  double cost_of_element(int statement) const;
  Known recall_row(int tensor, int version, const Row& row);
  bool compute_row(int tensor, int version, const Row& row);
  struct Points {
    std::array<std::int64_t, 16> dims{};
    std::vector<std::int64_t> strides;
  };
  Chunk evaluate_points(int statement, const Points& points, int count);
  void remember(int tensor, int version, std::int64_t linear, double value, double error);
  /// A read of what is computed. direct: its elements are remembered; others are found in what their makers read.
  struct NeededRead {
    int read = -1, version = 0;
    Makers makers = {};
    bool direct = true;
  };
  const std::vector<NeededRead>& needed_reads(int statement);
  void add_needed(int statement, const std::int64_t* dims, std::vector<Element>& found);
  void set_expanded_costs();
  void spend(int statement, int count);
  /// Counts elementary evaluations. Throws UserError beyond the limit, and EvaluationStopped.
  void spend(double evaluations);
  void store_rounded(int statement, const std::int64_t* dims, const std::vector<std::int64_t>& strides, int count);
  void store_chunk(int statement, const std::int64_t* dims, const std::vector<std::int64_t>& strides, int count);
  LazyDoubles& version_of(int tensor, int version);
  LazyDoubles& errors_of(int tensor, int version);

  std::vector<Store> stores_;
  std::map<std::string, int> store_index_;
  std::vector<CompiledStatement> statements_;
  std::vector<TouchedElements> touched_;  ///< by statement
  std::map<int, ElementLoops> element_loops_;
  std::map<int, std::vector<NeededRead>> needed_reads_;  ///< by statement
  Factor last_factor_;                                   ///< of compute_products()
  std::vector<LoopCode> group_loops_;
  std::map<std::string, double> scalars_;
  RoundingModel rounding_;
  bool backward_possible_ = true;
  bool recurrent_ = false;
  bool evaluated_ = false;  ///< by evaluate_all
  bool rounds_ = false;     ///< by evaluate_rounded
  bool shared_ = false;     ///< elements are remembered where forked processes see them
  double spent_ = 0;
  double limit_ = 0;
  const std::atomic<bool>* stop_ = nullptr;
  int depth_ = 0;
  std::vector<std::unique_ptr<std::vector<double>>> registers_;  ///< one a level of recursion
};

}  // namespace nestor
