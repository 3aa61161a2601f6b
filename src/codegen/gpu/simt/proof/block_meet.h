// Can two accesses of a block plan touch one element where they must not: at points, in threads or in blocks that differ?
#pragma once

#include "codegen/gpu/simt/proof/block_touch.h"

namespace nestor::nvptx {

struct MeetingAnswer {
  enum class Verdict : std::uint8_t { never, meet, open } verdict = Verdict::open;
  std::string example;  ///< when they meet: values of sizes, variables and threads
};

/// Both accesses are to one buffer.
MeetingAnswer can_meet(const BlockProof& proof, const Meeting& meeting);

/// Can it touch an index outside of its buffer?
MeetingAnswer can_leave(const BlockProof& proof, const Toucher& toucher);

/// Can `condition`, over the variables of loops and conditions around an op, differ from 0? Of the op's dims those in `dims` are within their
/// bounds, others any integer.
MeetingAnswer can_hold(const BlockProof& proof, const OpSite& site, const IntExpr& condition, const std::set<int>& dims = {});

/// How many of the nodes around both sites are the same, from the outermost one.
std::size_t common_nodes(const OpSite& a, const OpSite& b);

}  // namespace nestor::nvptx
