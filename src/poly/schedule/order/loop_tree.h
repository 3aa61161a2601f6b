// Persistent edits and look-ups on loop trees.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "poly/schedule/order/tree_node.h"

namespace nestor {

/// True for the kinds whose iterations run at the same time.
bool is_concurrent(LoopKind kind);

Tree make_leaf(const std::string& statement);
Tree make_loop(const std::string& name, Tree body);
/// The loop `like` around another body.
Tree with_body(const TreeNode& like, Tree body);
/// A sequence without nested sequences; one child alone is returned as it is.
Tree make_sequence(const std::vector<Tree>& children);
/// As above, but a sequence even around a single child: the form of a root.
Tree make_root(const std::vector<Tree>& children);

/// `root` with the node `old` replaced; sequences are flattened again. `old` must be in the tree.
Tree replace_node(const Tree& root, const TreeNode* old, const Tree& replacement);

/// The nodes from the root to `node`, both included; empty when absent.
std::vector<Tree> path_to(const Tree& root, const TreeNode* node);
/// The loop called `name`, or null.
Tree find_loop(const Tree& root, const std::string& name);
/// The leaf of `statement`, or null.
Tree find_leaf(const Tree& root, const std::string& statement);
/// Names of all loops, in textual order.
std::vector<std::string> loop_names(const Tree& root);
/// Names of the statements below a node, in textual order.
std::vector<std::string> statements_under(const TreeNode& node);
/// Number of loops above the node.
int loop_depth(const Tree& root, const TreeNode* node);
bool contains(const TreeNode& node, const TreeNode* other);

/// Where the statements of a tree are, and where the paths of two of them part.
class TreeIndex {
 public:
  explicit TreeIndex(const Tree& root);

  /// Loops around a statement, outermost first.
  const std::vector<const TreeNode*>& loops(const std::string& statement) const;
  std::vector<std::string> loop_names(const std::string& statement) const;

  struct Meeting {
    std::size_t shared;  ///< number of loops around both
    int order;           ///< -1: the first comes before the second in the body they share, 1: after, 0: same statement
  };
  Meeting meet(const std::string& first, const std::string& second) const;

 private:
  struct StatementPath {
    std::vector<const TreeNode*> loops;
    std::vector<std::pair<const TreeNode*, std::size_t>> path;  ///< each inner node with the child taken
  };
  void visit(const TreeNode& node, StatementPath& place);
  const StatementPath& place(const std::string& statement) const;
  std::map<std::string, StatementPath> places_;
};

}  // namespace nestor
