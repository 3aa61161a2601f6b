// Revisions of the code generator: which programs make, and check, kernels in the same way.
#pragma once

#include <string_view>

namespace nestor {

/// One number for each kind of device, so that a change of host code leaves the records of GPUs as they are, and the other way round.
struct CodegenRevisions {
  int cuda = 8;
  int host = 8;
  /// `kind`: DeviceIdentity::kind, "host" or "cuda".
  constexpr int of(std::string_view kind) const { return kind == "cuda" ? cuda : host; }
};

/// Raise a number whenever the same steps may give other code for that kind of device than before, or a check refuses what it let pass: the
/// tuner measures trials of another revision again, and their kernels serve no more until this revision has checked them
/// (docs/database.md, "Revisions"). They are numbers and no hash of the sources, so that a comment does not invalidate every record; who
/// forgets it is told by tests/golden/api_codegen_revision_test.cc. Records made before revisions were counted have revision 0.
inline constexpr CodegenRevisions kCodegenRevisions{};

}  // namespace nestor
