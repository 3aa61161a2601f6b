// Persistent edits and look-ups on loop trees.
#include "poly/schedule/order/loop_tree.h"

#include <algorithm>

#include "support/error.h"

namespace nestor {
namespace {

std::vector<Tree> flatten(const std::vector<Tree>& children) {
  std::vector<Tree> flat;
  for (const Tree& child : children) {
    if (child->kind == TreeNode::Kind::sequence) {
      flat.insert(flat.end(), child->children.begin(), child->children.end());
    } else {
      flat.push_back(child);
    }
  }
  return flat;
}

Tree find_if(const Tree& node, const std::function<bool(const TreeNode&)>& wanted) {
  if (wanted(*node)) return node;
  for (const Tree& child : node->children) {
    if (const Tree found = find_if(child, wanted)) return found;
  }
  return nullptr;
}

void visit_tree(const TreeNode& node, const std::function<void(const TreeNode&)>& visitor) {
  visitor(node);
  for (const Tree& child : node.children) visit_tree(*child, visitor);
}

bool find_path(const Tree& node, const TreeNode* wanted, std::vector<Tree>& path) {
  path.push_back(node);
  if (node.get() == wanted) return true;
  for (const Tree& child : node->children) {
    if (find_path(child, wanted, path)) return true;
  }
  path.pop_back();
  return false;
}

}  // namespace

bool is_concurrent(LoopKind kind) { return kind != LoopKind::serial && kind != LoopKind::unroll; }

Tree make_leaf(const std::string& statement) {
  TreeNode node{TreeNode::Kind::leaf, statement, LoopKind::serial, 0, false, {}, {}};
  return std::make_shared<const TreeNode>(std::move(node));
}

Tree make_loop(const std::string& name, Tree body) {
  TreeNode node{TreeNode::Kind::loop, name, LoopKind::serial, 0, false, {}, {std::move(body)}};
  return std::make_shared<const TreeNode>(std::move(node));
}

Tree with_body(const TreeNode& like, Tree body) {
  TreeNode node = like;
  node.children = {std::move(body)};
  return std::make_shared<const TreeNode>(std::move(node));
}

Tree make_sequence(const std::vector<Tree>& children) {
  const std::vector<Tree> flat = flatten(children);
  return flat.size() == 1 ? flat.front() : make_root(flat);
}

Tree make_root(const std::vector<Tree>& children) {
  TreeNode node{TreeNode::Kind::sequence, "", LoopKind::serial, 0, false, {}, flatten(children)};
  return std::make_shared<const TreeNode>(std::move(node));
}

Tree replace_node(const Tree& root, const TreeNode* old, const Tree& replacement) {
  const std::vector<Tree> path = path_to(root, old);
  if (path.empty()) internal_error("replace_node: the node is not in the tree");
  Tree current = replacement;
  for (std::size_t k = path.size() - 1; k-- > 0;) {
    const TreeNode& parent = *path[k];
    if (parent.kind == TreeNode::Kind::loop) {
      current = with_body(parent, current);
      continue;
    }
    std::vector<Tree> children = parent.children;
    std::replace_if(children.begin(), children.end(), [&](const Tree& child) { return child == path[k + 1]; }, current);
    current = make_sequence(children);
  }
  return current->kind == TreeNode::Kind::sequence ? current : make_root({current});
}

std::vector<Tree> path_to(const Tree& root, const TreeNode* node) {
  std::vector<Tree> path;
  find_path(root, node, path);
  return path;
}

Tree find_loop(const Tree& root, const std::string& name) {
  return find_if(root, [&](const TreeNode& node) { return node.kind == TreeNode::Kind::loop && node.name == name; });
}

Tree find_leaf(const Tree& root, const std::string& statement) {
  return find_if(root, [&](const TreeNode& node) { return node.kind == TreeNode::Kind::leaf && node.name == statement; });
}

std::vector<std::string> loop_names(const Tree& root) {
  std::vector<std::string> names;
  visit_tree(*root, [&](const TreeNode& node) {
    if (node.kind == TreeNode::Kind::loop) names.push_back(node.name);
  });
  return names;
}

std::vector<std::string> statements_under(const TreeNode& node) {
  std::vector<std::string> names;
  visit_tree(node, [&](const TreeNode& inner) {
    if (inner.kind == TreeNode::Kind::leaf) names.push_back(inner.name);
  });
  return names;
}

int loop_depth(const Tree& root, const TreeNode* node) {
  int depth = 0;
  for (const Tree& above : path_to(root, node)) {
    if (above.get() != node && above->kind == TreeNode::Kind::loop) ++depth;
  }
  return depth;
}

bool contains(const TreeNode& node, const TreeNode* other) {
  if (&node == other) return true;
  return std::any_of(node.children.begin(), node.children.end(), [&](const Tree& child) { return contains(*child, other); });
}

TreeIndex::TreeIndex(const Tree& root) {
  StatementPath place;
  visit(*root, place);
}

void TreeIndex::visit(const TreeNode& node, StatementPath& place) {
  if (node.kind == TreeNode::Kind::leaf) {
    places_[node.name] = place;
    return;
  }
  if (node.kind == TreeNode::Kind::loop) place.loops.push_back(&node);
  for (std::size_t k = 0; k < node.children.size(); ++k) {
    place.path.emplace_back(&node, k);
    visit(*node.children[k], place);
    place.path.pop_back();
  }
  if (node.kind == TreeNode::Kind::loop) place.loops.pop_back();
}

const TreeIndex::StatementPath& TreeIndex::place(const std::string& statement) const {
  const auto found = places_.find(statement);
  if (found == places_.end()) internal_error("statement {} is not in the loop tree", statement);
  return found->second;
}

const std::vector<const TreeNode*>& TreeIndex::loops(const std::string& statement) const { return place(statement).loops; }

std::vector<std::string> TreeIndex::loop_names(const std::string& statement) const {
  std::vector<std::string> names;
  for (const TreeNode* loop : loops(statement)) names.push_back(loop->name);
  return names;
}

TreeIndex::Meeting TreeIndex::meet(const std::string& first, const std::string& second) const {
  const StatementPath& a = place(first);
  const StatementPath& b = place(second);
  Meeting meeting{0, 0};
  const std::size_t common = std::min(a.path.size(), b.path.size());
  for (std::size_t k = 0; k < common; ++k) {
    if (a.path[k].first->kind == TreeNode::Kind::loop) ++meeting.shared;
    if (a.path[k].second != b.path[k].second) {
      meeting.order = a.path[k].second < b.path[k].second ? -1 : 1;
      break;
    }
  }
  return meeting;
}

}  // namespace nestor
