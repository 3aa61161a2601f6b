// Hash consing of scalar expressions, within one expression.
#include "poly/nest/scalar_share.h"

#include <bit>
#include <map>
#include <tuple>

namespace nestor {
namespace {

class Sharing {
 public:
  ScalarExpr share(const ScalarExpr& expr) {
    const auto done = done_.find(node_identity(expr));
    if (done != done_.end()) return done->second;
    std::vector<ScalarExpr> args;
    std::vector<const void*> identities;
    bool changed = false;
    for (const ScalarExpr& arg : expr.args()) {
      args.push_back(share(arg));
      identities.push_back(node_identity(args.back()));
      changed = changed || identities.back() != node_identity(arg);
    }
    const Key key{expr.op(), expr.type(), std::bit_cast<std::uint64_t>(expr.number()), expr.ordinal(), expr.name(), identities};
    auto known = nodes_.find(key);
    if (known == nodes_.end()) known = nodes_.emplace(key, changed ? expr.with_args(args) : expr).first;
    done_.emplace(node_identity(expr), known->second);
    return known->second;
  }

 private:
  using Key = std::tuple<ScalarOp, ElementType, std::uint64_t, int, std::string, std::vector<const void*>>;
  std::map<Key, ScalarExpr> nodes_;
  std::map<const void*, ScalarExpr> done_;  ///< by the identity of the original, which the caller keeps alive
};

/// Takes the nodes of the expression from `left`, until none are left.
void count_down(const ScalarExpr& expr, int& left) {
  --left;
  for (const ScalarExpr& arg : expr.args()) {
    if (left <= 0) return;
    count_down(arg, left);
  }
}

}  // namespace

bool is_short(const ScalarExpr& expr) {
  int left = 4096;
  count_down(expr, left);
  return left > 0;
}

ScalarExpr share_nodes(const ScalarExpr& expr) { return expr.defined() ? Sharing().share(expr) : expr; }

}  // namespace nestor
