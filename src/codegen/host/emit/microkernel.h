// The inner routines of contractions: a register-blocked product of two panels, and the packing of panels.
#pragma once

#include "codegen/host/emit/frame.h"

namespace nestor {

/// C[rows x vectors*width] (+)= scale * A * B, in registers over the whole depth.
struct MicrokernelShape {
  int rows = 6;
  int vectors = 2;
  unsigned width = 8;
  bool packed_a = false;  ///< A is [depth][rows]; else row i starts at a + i*a_stride and is dense along depth
  bool packed_b = true;   ///< B is [depth][vectors*width]; else step k starts at b + k*b_stride
  bool scaled = false;
  bool fetches_c = false;  ///< C is asked for while the product is computed
};

/// void(ptr a, i64 a_stride, ptr b, i64 b_stride, ptr c, i64 c_stride, i64 depth, i64 rows, i64 columns, float scale,
/// i1 accumulate): f32 elements; `rows` and `columns` >= 1 say how much of C is there.
llvm::Function* microkernel(HostModule& host, const MicrokernelShape& shape);

/// Copies a matrix [count][depth] to f32 panels [ceil(count/panel)][depth][panel]; what lies beyond `count` in the last panel
/// is arbitrary. Up to `width` elements after the last panel may be overwritten.
struct PackShape {
  enum class Dense : std::uint8_t { across, along, neither };  ///< unit stride across a panel, along the depth, or none
  int panel = 16;
  unsigned width = 8;
  ElementType type = ElementType::f32;
  Dense dense = Dense::neither;
};

/// void(ptr panels, ptr source, i64 across_stride, i64 depth_stride, i64 count, i64 depth); strides in elements.
llvm::Function* packer(HostModule& host, const PackShape& shape);

}  // namespace nestor
