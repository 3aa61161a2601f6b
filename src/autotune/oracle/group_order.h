// Group order: an order of a group's statements in which rows of one statement's points follow each other.
#pragma once

#include <isl/cpp.h>

#include <vector>

namespace nestor {

/// A statement's instances and what they touch, sizes fixed: { S[dims] } and { S[dims] -> Tensor[index] }.
struct TouchedElements {
  isl::set domain;
  isl::map write;
  std::vector<isl::map> reads;
};

/// { S[dims] -> [time] } of all statements, which have equally many dims and share their loops, one after the other in the innermost body.
/// Two statements that touch one element, and one of which writes it, keep their order there; others leave shared loops where they can. It
/// shares no code with the steps of schedules, whose results are judged by it. Throws UserError where isl takes too long.
isl::union_map distributed_order(const std::vector<TouchedElements>& statements);

}  // namespace nestor
