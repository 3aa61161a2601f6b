// Rule "neutral_terms": terms that are the neutral element of their reduction leave its domain.
//
// Pattern    a reduction r (+)= t where t is the neutral element on a part of the domain: because of a select with an affine
//            condition, in t itself or in elementwise statements that t reads (select(c, x, -inf) under max; exp(-inf) = 0 under a sum).
// Rewrite    that part leaves the reduction's domain; domains of statements that only computed temporaries for it shrink to what is
//            still read (backward bounds); selects that are decided on the smaller domain are replaced by their branch.
// Conditions the part is described by affine conditions; what stands beside a known constant is finite (0 * x = 0,
//            -inf - x = -inf): see Rounding.
// Proof      In a monoid with neutral element e, (+)_{J} t_j = (+)_{J'} t_j when t_j = e for j in J \ J'. Constants are propagated through
//            elementwise statements by exp(-inf) = 0, 0 * x = 0, -inf - x = -inf. Not reading an element of a temporary does not change
//            the others. For masks this is the tile skipping of T. Dao et al., 2022, arXiv:2205.14135, element by element.
// Rounding   None on finite inputs. Where an input is infinite or not a number, the original may give NaN (0 * inf) and the rewritten
//            nest a number. A row without any term keeps its neutral elements (0/0 stays NaN).
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isl/map.h>
#include <isl/set.h>

#include <cmath>
#include <map>

#include "poly/algebra/condition.h"
#include "poly/algebra/nest_edit.h"
#include "poly/algebra/polynomial.h"
#include "poly/algebra/rule_list.h"
#include "poly/isl_tools.h"

namespace nestor {
namespace {

/// A part of a statement's domain, and the constant that an expression has there if it is known.
struct Piece {
  isl::set domain;
  std::optional<double> value;
};
using Pieces = std::vector<Piece>;

/// Elements of a temporary that hold a known constant.
struct KnownElements {
  isl::set elements;
  double value;
};

constexpr std::size_t kMostPieces = 16;

/// Value of a sum or product with one known side, if that decides it (for finite other sides).
std::optional<double> combine_known(ScalarOp op, std::optional<double> a, std::optional<double> b) {
  const auto finite_or_unknown = [](std::optional<double> x) { return !x || std::isfinite(*x); };
  switch (op) {
    case ScalarOp::add:
      if (a && b) return *a + *b;
      if (a && std::isinf(*a)) return a;
      if (b && std::isinf(*b)) return b;
      return std::nullopt;
    case ScalarOp::sub:
      if (a && b) return *a - *b;
      if (a && std::isinf(*a)) return a;
      if (b && std::isinf(*b)) return -*b;
      return std::nullopt;
    case ScalarOp::mul:
      if (a && *a == 0 && finite_or_unknown(b)) return 0;
      if (b && *b == 0 && finite_or_unknown(a)) return 0;
      if (a && b) return *a * *b;
      return std::nullopt;
    case ScalarOp::div:
      if (a && b && *b != 0) return *a / *b;
      if (a && *a == 0 && !b) return 0;
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

/// Abstract evaluation of a statement's value over its domain.
class ConstantParts {
 public:
  ConstantParts(const Statement& statement, const std::map<std::string, KnownElements>& known)
      : statement_(statement), known_(known) {}

  Pieces parts(const ScalarExpr& expr, const isl::set& domain) const {
    if (domain.is_empty()) return {};
    switch (expr.op()) {
      case ScalarOp::constant:
        return {{domain, expr.number()}};
      case ScalarOp::read:
        return parts_of_read(expr, domain);
      case ScalarOp::select:
        return parts_of_select(expr, domain);
      case ScalarOp::cast:
        return mapped(expr.args()[0], domain,
                      [&](double x) { return constant_of(ScalarExpr::cast(expr.type(), ScalarExpr::constant(x))); });
      case ScalarOp::exp:
      case ScalarOp::exp2:
      case ScalarOp::neg:
      case ScalarOp::tanh:
      case ScalarOp::erf:
        return mapped(expr.args()[0], domain,
                      [&](double x) { return constant_of(ScalarExpr::make(expr.op(), {ScalarExpr::constant(x)})); });
      case ScalarOp::add:
      case ScalarOp::sub:
      case ScalarOp::mul:
      case ScalarOp::div:
        return parts_of_binary(expr, domain);
      default:
        return {{domain, std::nullopt}};
    }
  }

 private:
  static double constant_of(const ScalarExpr& expr) {
    return evaluate(expr, [](int) { return 0.0; }, [](int) { return 0; }, [](const std::string&) { return 0.0; });
  }

  template <class F>
  Pieces mapped(const ScalarExpr& arg, const isl::set& domain, const F& function) const {
    Pieces pieces = parts(arg, domain);
    for (Piece& piece : pieces) {
      if (piece.value) piece.value = function(*piece.value);
    }
    return pieces;
  }

  Pieces parts_of_read(const ScalarExpr& expr, const isl::set& domain) const {
    const Access& read = statement_.reads.at(static_cast<std::size_t>(expr.ordinal()));
    const auto found = known_.find(read.tensor);
    if (found == known_.end()) return {{domain, std::nullopt}};
    const isl::set there = domain.intersect(read.relation.intersect_range(found->second.elements).domain());
    Pieces pieces;
    if (!there.is_empty()) pieces.push_back({there, found->second.value});
    const isl::set elsewhere = domain.subtract(there);
    if (!elsewhere.is_empty()) pieces.push_back({elsewhere, std::nullopt});
    return pieces;
  }

  Pieces parts_of_select(const ScalarExpr& expr, const isl::set& domain) const {
    const auto condition = condition_set(statement_, expr.args()[0]);
    if (!condition) return {{domain, std::nullopt}};
    Pieces pieces = parts(expr.args()[1], domain.intersect(*condition));
    for (const Piece& piece : parts(expr.args()[2], domain.subtract(*condition))) pieces.push_back(piece);
    return pieces;
  }

  Pieces parts_of_binary(const ScalarExpr& expr, const isl::set& domain) const {
    Pieces pieces;
    for (const Piece& a : parts(expr.args()[0], domain)) {
      for (const Piece& b : parts(expr.args()[1], a.domain))
        pieces.push_back({b.domain, combine_known(expr.op(), a.value, b.value)});
    }
    if (pieces.size() > kMostPieces) return {{domain, std::nullopt}};
    return pieces;
  }

  const Statement& statement_;
  const std::map<std::string, KnownElements>& known_;
};

class NeutralTerms {
 public:
  explicit NeutralTerms(const Nest& nest) : nest_(nest) {}

  /// The rewritten nest; `shrunk` receives the reductions that lost terms.
  Nest run(std::vector<std::string>& shrunk) {
    for (Statement& statement : nest_.statements) {
      const Pieces pieces = ConstantParts(statement, known_).parts(statement.value, domain_in(nest_, statement));
      if (statement.reduction) {
        if (drop_neutral(statement, pieces)) shrunk.push_back(statement.name);
      } else if (is_elementwise_temporary(nest_, statement.write.tensor)) {
        remember(statement, pieces);
      }
    }
    if (shrunk.empty()) return nest_;
    shrink_to_need();
    for (Statement& statement : nest_.statements) decide_selects(statement);
    std::erase_if(nest_.statements, [&](const Statement& s) { return domain_in(nest_, s).is_empty(); });
    return nest_;
  }

 private:
  bool drop_neutral(Statement& statement, const Pieces& pieces) const {
    const double neutral = neutral_element(*statement.reduction, nest_.tensor(statement.write.tensor).type);
    isl::set dropped = isl::set::empty(statement.domain.space());
    for (const Piece& piece : pieces) {
      if (piece.value && *piece.value == neutral) dropped = dropped.unite(piece.domain);
    }
    if (dropped.is_empty()) return false;
    narrow(statement, statement.domain.subtract(dropped));
    return true;
  }

  /// Sets the domain, in a form as simple as the sizes' context allows.
  void narrow(Statement& statement, const isl::set& domain) const {
    const isl::set plain = domain.intersect_params(full_context(nest_)).coalesce();
    isl::set simple = isl::manage(isl_set_gist_params(plain.copy(), full_context(nest_).release())).coalesce();
    for (unsigned k = 0; k < simple.tuple_dim(); ++k) {
      simple = isl::manage(isl_set_set_dim_name(simple.release(), isl_dim_set, k, statement.dims[k].c_str()));
    }
    statement.domain = simple;
  }

  void remember(const Statement& statement, const Pieces& pieces) {
    std::map<double, isl::set> regions;
    for (const Piece& piece : pieces) {
      if (!piece.value || std::isnan(*piece.value)) continue;
      const auto found = regions.find(*piece.value);
      if (found == regions.end()) {
        regions.emplace(*piece.value, piece.domain);
      } else {
        found->second = found->second.unite(piece.domain);
      }
    }
    // One constant a temporary is enough for masks; the last one found wins only among ordinary numbers.
    for (const auto& [value, domain] : regions) {
      const bool special = value == 0 || std::isinf(value);
      if (!special) continue;
      const isl::set elements = domain.apply(statement.write.relation).coalesce();
      known_.insert_or_assign(statement.write.tensor, KnownElements{elements, value});
    }
  }

  /// Elements of a tensor that some statement still reads.
  isl::set needed(const Tensor& tensor) const {
    isl::set elements = isl::set::empty(tensor_box(tensor).space());
    for (const Statement& reader : nest_.statements) {
      for (const Access& read : reader.reads) {
        if (read.tensor == tensor.name)
          elements = elements.unite(read.relation.intersect_domain(domain_in(nest_, reader)).range());
      }
    }
    return elements.coalesce();
  }

  /// Backward bounds: no temporary is computed where nobody reads it. Readers come after writers, so one sweep from the end suffices
  /// for nests without cycles between tensors; with cycles the result is still right, only larger than it could be.
  void shrink_to_need() {
    for (std::size_t k = nest_.statements.size(); k-- > 0;) {
      Statement& statement = nest_.statements[k];
      const Tensor& tensor = nest_.tensor(statement.write.tensor);
      if (tensor.role != TensorRole::temporary) continue;
      const isl::set domain = domain_in(nest_, statement);
      const isl::set used = statement.write.relation.intersect_range(needed(tensor)).domain().intersect(domain);
      if (!domain.is_subset(used)) narrow(statement, statement.domain.intersect(used));
    }
  }

  void decide_selects(Statement& statement) const {
    const isl::set domain = domain_in(nest_, statement);
    const ScalarExpr before = statement.value;
    statement.value = before.rewrite([&](const ScalarExpr& node) {
      if (node.op() != ScalarOp::select) return node;
      const auto condition = condition_set(statement, node.args()[0]);
      if (!condition) return node;
      if (domain.is_subset(*condition)) return node.args()[1];
      return domain.is_disjoint(*condition) ? node.args()[2] : node;
    });
    if (!statement.value.equals(before)) compact(statement);
  }

  Nest nest_;
  std::map<std::string, KnownElements> known_;
};

std::vector<RuleMatch> find(const Nest& nest) {
  std::vector<std::string> shrunk;
  NeutralTerms(nest).run(shrunk);
  if (shrunk.empty()) return {};
  return {{"neutral_terms", {}, fmt::format("terms of {} that change nothing are left out", fmt::join(shrunk, ", "))}};
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  expect_arguments("neutral_terms", target, 0);
  std::vector<std::string> shrunk;
  Nest result = NeutralTerms(nest).run(shrunk);
  if (shrunk.empty()) {
    refuse_rule("neutral_terms", "",
                "no reduction has terms that are its neutral element on a part of its domain with affine bounds");
  }
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& neutral_terms_rule() {
  static const Rule rule{"neutral_terms",
                         "terms that are the neutral element of their reduction leave its domain",
                         "a neutral element may be left out of a fold; constants propagate by exp(-inf) = 0 and 0 x = 0",
                         "none on finite inputs",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
