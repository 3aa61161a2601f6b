// DimsView: a statement's points as seen by statements over some of its dims.
#pragma once

#include "poly/nest/nest.h"

#include <string>
#include <vector>

namespace nestor {

/// The dims of the statement that are not among these.
std::vector<int> other_dims(const Statement& statement, const std::vector<int>& dims);

/// What rules need to take a statement apart into others over some of its dims each. The statement must outlive it.
class DimsView {
 public:
  /// `dims` of the statement, in their order.
  DimsView(const Statement& statement, std::vector<int> dims) : statement_(statement), dims_(std::move(dims)) {}

  /// A temporary of f32 with an element for each point of the dims, which have no negative values.
  Tensor tensor(const Nest& nest, const std::string& name) const;
  /// A statement over the points of the dims, which writes nothing yet.
  Statement over(const std::string& name) const;
  /// { View[dims] -> Statement }: the first of the points with such dims. `view` has been made by over().
  isl::map to_statement(const Statement& view) const;
  /// An access of the statement that follows no other dims, as `view` has it.
  isl::map seen_by(const Statement& view, const isl::map& access) const;
  /// { Statement -> tensor[dims] }, an access to what tensor() makes.
  isl::map element(const std::string& tensor) const;
  std::vector<std::string> names() const;

 private:
  const Statement& statement_;
  std::vector<int> dims_;
};

}  // namespace nestor
