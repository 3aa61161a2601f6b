// The revision of the code generator: which programs make, and check, kernels in the same way.
#pragma once

namespace nestor {

/// Raise it whenever the same steps may give other code than before, or a check refuses what it let pass: the tuner measures trials of another
/// revision again, and their kernels serve no more until this revision has checked them (docs/database.md, "Revisions").
/// It is a number and no hash of the sources, so that a comment does not invalidate every record; who forgets it is told by
/// tests/golden/api_codegen_revision_test.cc. Records made before revisions were counted have revision 0.
inline constexpr int kCodegenRevision = 7;

}  // namespace nestor
