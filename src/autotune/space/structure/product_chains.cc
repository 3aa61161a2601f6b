// Chains found by what products read, and by the loops that they share.
#include "autotune/space/structure/product_chains.h"

#include "autotune/space/structure/axes.h"
#include "codegen/tile/contraction.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/isl/isl_tools.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace nestor {
namespace {

/// A product of matrices in a loop group, by axes.
struct Product {
  std::string a_tensor, b_tensor, result;
  std::vector<int> a, b, written;  ///< that the operands and the result follow
  std::set<int> reduced;
  bool of_parts = false;  ///< one of several that one statement adds up

  bool is_of_rows(int axis) const { return has(a, axis) != has(b, axis) && has(written, axis); }
};

/// A reduction that multiplies no matrices.
struct Fold {
  std::set<std::string> read;
  std::set<int> reduced;
};

/// What matters of a loop group.
struct Member {
  int loop_group = -1;
  std::vector<Product> products;
  std::vector<Fold> folds;
  std::set<std::string> read, written;
  std::set<std::string> elsewhere;  ///< read at an index that is made of its dims, but follows none, as a quotient
  double results = 0;               ///< elements of each tensor that it writes
};

/// Places of the members that touch a tensor, in order.
struct Touched {
  std::vector<std::size_t> readers, writers;

  static bool any_within(const std::vector<std::size_t>& places, std::size_t first, std::size_t last) {
    const auto next = std::lower_bound(places.begin(), places.end(), first);
    return next != places.end() && *next < last;
  }
  bool written_within(std::size_t first, std::size_t last) const { return any_within(writers, first, last); }
  bool read_outside(std::size_t first, std::size_t last) const {
    return !readers.empty() && (readers.front() < first || readers.back() >= last);
  }
};

bool is_elsewhere(const Access& read) {
  const std::vector<std::optional<int>> followed = equal_dims(read);
  const std::vector<isl::pw_aff> indices = functions_of(read.relation);
  for (std::size_t p = 0; p < indices.size(); ++p) {
    const auto dims = static_cast<unsigned>(isl_pw_aff_dim(indices[p].get(), isl_dim_in));
    if (!followed[p] && isl_pw_aff_involves_dims(indices[p].get(), isl_dim_in, 0, dims) == isl_bool_true) return true;
  }
  return false;
}

class Stages {
 public:
  Stages(const Nest& nest, const NestStructure& structure, const std::vector<int>& loop_groups)
      : nest_(nest), structure_(structure) {
    std::set<std::string> made;
    for (const int u : loop_groups) {
      members_.push_back(member(u));
      made.insert(members_.back().written.begin(), members_.back().written.end());
    }
    for (Member& member : members_) find_elsewhere(member, made);
    for (std::size_t k = 0; k < members_.size(); ++k) {
      for (const std::string& tensor : members_[k].read) touched_[tensor].readers.push_back(k);
      for (const std::string& tensor : members_[k].written) touched_[tensor].writers.push_back(k);
    }
  }

  std::vector<ProductStage> cut() {
    add(0, members_.size());
    const auto products = std::count_if(stages_.begin(), stages_.end(), [&](const ProductStage& stage) {
      return multiplies(nest_, structure_, stage.loop_groups);
    });
    // What stands around the only products is no other stage.
    if (chains_ == 0 && products < 2) return {{loop_groups(0, members_.size()), false}};
    return std::move(stages_);
  }

 private:
  Member member(int u) const {
    Member result;
    result.loop_group = u;
    const LoopGroup& loop_group = structure_.loop_groups[static_cast<std::size_t>(u)];
    result.results = results_of(loop_group);
    for (const std::string& name : loop_group.statements) {
      const Statement& statement = nest_.statement(name);
      result.written.insert(statement.write.tensor);
      for (const Access& read : statement.reads) result.read.insert(read.tensor);
      std::set<int> reduced;
      for (std::size_t k = 0; k < loop_group.axes.size(); ++k) {
        if (loop_group.reduced[k]) reduced.insert(loop_group.axes[k]);
      }
      if (!multiplies_matrices(statement)) {
        std::set<std::string> read;
        for (const Access& each : statement.reads) read.insert(each.tensor);
        if (statement.reduction) result.folds.push_back({std::move(read), std::move(reduced)});
        continue;
      }
      const auto product = unscaled_contraction_of(statement);
      const Access &a = statement.reads[static_cast<std::size_t>(product->a)],
                   &b = statement.reads[static_cast<std::size_t>(product->b)];
      result.products.push_back({a.tensor, b.tensor, statement.write.tensor, followed_axes(loop_group, a),
                                 followed_axes(loop_group, b), followed_axes(loop_group, statement.write), std::move(reduced),
                                 unscaled_contractions_of(statement).size() > 1});
    }
    return result;
  }

  /// Once for all chains that are tried: isl takes its time.
  void find_elsewhere(Member& member, const std::set<std::string>& made) const {
    for (const std::string& name : structure_.loop_groups[static_cast<std::size_t>(member.loop_group)].statements) {
      for (const Access& read : nest_.statement(name).reads) {
        if (made.contains(read.tensor) && is_elsewhere(read)) member.elsewhere.insert(read.tensor);
      }
    }
  }

  std::vector<int> loop_groups(std::size_t first, std::size_t last) const {
    std::vector<int> found;
    for (std::size_t k = first; k < last; ++k) found.push_back(members_[k].loop_group);
    return found;
  }

  /// Do the members have rows in common from product to product? Then a block keeps what is between them: later products sum over one axis,
  /// and each point of the axes that both operands follow is a block of its own. So is each of those that all products have rows along: what
  /// joins several results, as a difference of two heads, comes after.
  bool is_chain(std::size_t first, std::size_t last) const {
    if (reads_elsewhere(first, last)) return false;
    const std::vector<int> common = common_axes(structure_, loop_groups(first, last), members_[first].loop_group);
    std::vector<int> rows = common;
    std::set<int> streamed;
    std::optional<std::set<int>> of_all;  // axes that the results of all products follow
    std::set<std::string> results;        // tensors that come from a product
    const auto is_result = [&](const std::string& tensor) { return results.contains(tensor); };
    for (std::size_t k = first; k < last; ++k) {
      const Member& member = members_[k];
      for (const Product& product : member.products) {
        if (is_result(product.a_tensor) || is_result(product.b_tensor))
          streamed.insert(product.reduced.begin(), product.reduced.end());
        std::erase_if(rows, [&](int axis) { return !product.is_of_rows(axis); });
        if (!of_all) of_all.emplace(product.written.begin(), product.written.end());
        std::erase_if(*of_all, [&](int axis) { return !has(product.written, axis); });
        for (const int axis : product.written) {
          if (axis >= 0 && has(product.a, axis) && has(product.b, axis) && !has(common, axis)) return false;
        }
      }
      if (!member.products.empty() || std::any_of(member.read.begin(), member.read.end(), is_result))
        results.insert(member.written.begin(), member.written.end());
    }
    const auto is_common = [&](int axis) { return axis < 0 || has(common, axis); };
    return streamed.size() == 1 && !rows.empty() && std::all_of(of_all->begin(), of_all->end(), is_common) &&
           !has_wider_products(first, last, *streamed.begin()) && !has_longer_rows(first, last, *streamed.begin(), common) &&
           !has_strangers(first, last, *streamed.begin(), common);
  }

  /// Are there members that no product among them has to do with, and whose results lie along other axes than those of rows and of streamed
  /// columns?
  bool has_strangers(std::size_t first, std::size_t last, int axis, const std::vector<int>& common) const {
    const auto multiplies = [&](int u) {
      const auto own =
          std::find_if(members_.begin(), members_.end(), [&](const Member& member) { return member.loop_group == u; });
      return !own->products.empty();
    };
    for (const std::vector<int>& related : related_loop_groups(nest_, structure_, loop_groups(first, last))) {
      if (std::any_of(related.begin(), related.end(), multiplies)) continue;
      for (const int u : related) {
        const LoopGroup& loop_group = structure_.loop_groups[static_cast<std::size_t>(u)];
        for (std::size_t p = 0; p < loop_group.axes.size(); ++p) {
          if (!loop_group.reduced[p] && loop_group.axes[p] != axis && !has(common, loop_group.axes[p])) return true;
        }
      }
    }
    return false;
  }

  /// Is there a product that does not go along the axis, with more columns than a block keeps beside the others'? What follows it takes it in
  /// another order.
  bool has_longer_rows(std::size_t first, std::size_t last, int axis, const std::vector<int>& common) const {
    constexpr std::int64_t kMostColumns = 512;
    for (std::size_t k = first; k < last; ++k) {
      for (const Product& product : members_[k].products) {
        if (has(product.written, axis) || product.reduced.contains(axis)) continue;
        std::int64_t columns = 1;
        for (const int own : product.written) {
          if (own >= 0 && !has(common, own)) columns *= structure_.axes[static_cast<std::size_t>(own)].extent;
        }
        if (columns > kMostColumns) return true;
      }
    }
    return false;
  }

  /// Among products along the axis that have operands of 16 bits, are there others that have none, or parts of such? Those would keep all of them
  /// from tensor cores, or take their registers.
  bool has_wider_products(std::size_t first, std::size_t last, int axis) const {
    std::set<std::string> sums;
    const auto narrow = [&](const Product& product) {
      return is_half(nest_.tensor(product.a_tensor).type) || is_half(nest_.tensor(product.b_tensor).type);
    };
    bool any = false, wider = false;
    for (std::size_t k = first; k < last; ++k) {
      for (const Product& product : members_[k].products) {
        const bool along = has(product.written, axis) || product.reduced.contains(axis);
        any = any || (along && narrow(product));
        wider = wider || (!along && (!narrow(product) || product.of_parts || !sums.insert(product.result).second));
      }
    }
    return any && wider;
  }

  /// Are the columns of all products among the members reduced along one axis, so that nothing along it leaves, and rows are theirs in common? Then
  /// a block takes tile after tile of columns, and keeps values of its rows alone. Or are products added up along an axis of both operands? Then
  /// a block takes one product after the other, and keeps one tile.
  bool is_folded(std::size_t first, std::size_t last) const {
    if (reads_elsewhere(first, last)) return false;
    std::set<int> streamed;
    std::set<std::string> results;  // tensors that come from a product
    const auto is_result = [&](const std::string& tensor) { return results.contains(tensor); };
    for (std::size_t k = first; k < last; ++k) {
      const Member& member = members_[k];
      for (const Product& product : member.products) {
        if (is_result(product.a_tensor) || is_result(product.b_tensor)) return false;
      }
      for (const Fold& fold : member.folds) {
        if (std::any_of(fold.read.begin(), fold.read.end(), is_result)) streamed.insert(fold.reduced.begin(), fold.reduced.end());
      }
      if (!member.products.empty() || std::any_of(member.read.begin(), member.read.end(), is_result))
        results.insert(member.written.begin(), member.written.end());
    }
    if (streamed.size() != 1) return false;
    const int axis = *streamed.begin();
    return (has_columns(first, last, axis) || has_products(first, last, axis)) && keeps_columns(first, last, axis);
  }

  /// Do all products among the members have columns along the axis, and rows of the other operand along an axis that all members share?
  bool has_columns(std::size_t first, std::size_t last, int axis) const {
    std::vector<int> rows = common_axes(structure_, loop_groups(first, last), members_[first].loop_group);
    for (std::size_t k = first; k < last; ++k) {
      for (const Product& product : members_[k].products) {
        if (!product.is_of_rows(axis)) return false;
        std::erase_if(rows, [&](int row) { return !product.is_of_rows(row) || has(product.a, row) == has(product.a, axis); });
      }
    }
    return !rows.empty();
  }

  /// Is there a product for each point of the axis, with rows and columns that all members share?
  bool has_products(std::size_t first, std::size_t last, int axis) const {
    const std::vector<int> common = common_axes(structure_, loop_groups(first, last), members_[first].loop_group);
    const auto is_shared = [&](const Product& product, const std::vector<int>& of, const std::vector<int>& other) {
      return std::any_of(common.begin(), common.end(),
                         [&](int each) { return has(of, each) && !has(other, each) && has(product.written, each); });
    };
    for (std::size_t k = first; k < last; ++k) {
      for (const Product& product : members_[k].products) {
        const bool each = has(product.a, axis) && has(product.b, axis) && has(product.written, axis);
        if (!each || !is_shared(product, product.a, product.b) || !is_shared(product, product.b, product.a)) return false;
      }
    }
    return true;
  }

  /// Does nothing along the axis leave the members?
  bool keeps_columns(std::size_t first, std::size_t last, int axis) const {
    for (std::size_t k = first; k < last; ++k) {
      const LoopGroup& loop_group = structure_.loop_groups[static_cast<std::size_t>(members_[k].loop_group)];
      for (const std::string& name : loop_group.statements) {
        const Access& write = nest_.statement(name).write;
        if (!stays(write.tensor, first, last) && has(followed_axes(loop_group, write), axis)) return false;
      }
    }
    return true;
  }

  /// Is it a temporary that nobody but the members first .. last - 1 reads?
  bool stays(const std::string& tensor, std::size_t first, std::size_t last) const {
    return nest_.tensor(tensor).role == TensorRole::temporary && !touched_.at(tensor).read_outside(first, last);
  }

  /// Does a member read what another one makes elsewhere? Tiles are read at their own places.
  bool reads_elsewhere(std::size_t first, std::size_t last) const {
    return std::any_of(members_.begin() + static_cast<std::ptrdiff_t>(first),
                       members_.begin() + static_cast<std::ptrdiff_t>(last), [&](const Member& member) {
                         return std::any_of(member.elsewhere.begin(), member.elsewhere.end(), [&](const std::string& tensor) {
                           return touched_.at(tensor).written_within(first, last);
                         });
                       });
  }

  /// Elements of temporaries that only the members touch.
  double kept(std::size_t first, std::size_t last) const {
    double elements = 0;
    for (std::size_t k = first; k < last; ++k) {
      for (const std::string& tensor : members_[k].written) {
        // Each counts where it is written first.
        if (!touched_.at(tensor).written_within(first, k) && stays(tensor, first, last)) elements += members_[k].results;
      }
    }
    return elements;
  }

  /// The stages of the members first .. last - 1.
  void add(std::size_t first, std::size_t last) {
    if (first == last) return;
    std::size_t from = first, to = first;
    double most = 0;
    bool chain = false;
    for (std::size_t begin = first; begin < last; ++begin) {
      for (std::size_t end = begin + 2; end <= last; ++end) {
        const double elements = kept(begin, end);
        if (elements <= most) continue;
        const bool in_a_row = is_chain(begin, end);
        // Beside products in a row others are left as they are.
        if (!in_a_row && (chains_ > 0 || !is_folded(begin, end))) continue;
        chain = in_a_row;
        most = elements;
        from = begin;
        to = end;
      }
    }
    if (from == to) {
      stages_.push_back({loop_groups(first, last), false});
      return;
    }
    chains_ += chain ? 1 : 0;
    add(first, from);
    stages_.push_back({loop_groups(from, to), true});
    add(to, last);
  }

  const Nest& nest_;
  const NestStructure& structure_;
  std::vector<Member> members_;
  std::map<std::string, Touched> touched_;  ///< by tensor
  std::vector<ProductStage> stages_;
  int chains_ = 0;  ///< of products in a row
};

}  // namespace

std::vector<ProductStage> product_stages(const Nest& nest, const NestStructure& structure, const std::vector<int>& loop_groups) {
  return Stages(nest, structure, loop_groups).cut();
}

bool reads_stored_sums(const Nest& nest, const NestStructure& structure, const std::vector<int>& loop_groups) {
  std::set<std::string> own, made;  // statements of the group; tensors
  for (const int u : loop_groups) {
    const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
    own.insert(loop_group.statements.begin(), loop_group.statements.end());
    for (const std::string& name : loop_group.statements) {
      const Statement& statement = nest.statement(name);
      const bool uses = std::any_of(statement.reads.begin(), statement.reads.end(),
                                    [&](const Access& read) { return made.contains(read.tensor); });
      if (loop_group.seldom || (uses && !statement.reduction)) made.insert(statement.write.tensor);
    }
  }
  return std::any_of(made.begin(), made.end(), [&](const std::string& tensor) {
    const std::vector<const Statement*> readers = readers_of(nest, tensor);
    const auto inside = [&](const Statement* reader) { return own.contains(reader->name); };
    return std::any_of(readers.begin(), readers.end(), inside) && !std::all_of(readers.begin(), readers.end(), inside);
  });
}

}  // namespace nestor
