// Hand-written PTX for tests of launching; the compiler's own output is tested in simt_device_test.cc.
#pragma once

#include "support/launch_recipe.h"

#include <string>

namespace nestor::test {

/// y[i][j] = alpha * x[i][j], one block a row and grids of any size: scale_recipe_gpu() launches it.
inline std::string scale_ptx() {
  return R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry scale_kernel(.param .u64 p_x, .param .u64 p_y, .param .u64 p_xs, .param .u64 p_ys, .param .u64 p_rows,
                             .param .u64 p_cols, .param .f32 p_alpha, .param .u64 p_workspace)
{
  .reg .pred %p<3>;
  .reg .b32 %r<6>;
  .reg .f32 %f<4>;
  .reg .b64 %rd<20>;
  ld.param.u64 %rd0, [p_x];
  ld.param.u64 %rd1, [p_y];
  ld.param.u64 %rd2, [p_xs];
  ld.param.u64 %rd3, [p_ys];
  ld.param.u64 %rd4, [p_rows];
  ld.param.u64 %rd5, [p_cols];
  ld.param.f32 %f0, [p_alpha];
  mov.u32 %r0, %ctaid.x;
  cvt.u64.u32 %rd6, %r0;
  mov.u32 %r1, %nctaid.x;
  cvt.u64.u32 %rd7, %r1;
  mov.u32 %r2, %ntid.x;
  cvt.u64.u32 %rd8, %r2;
rows:
  setp.ge.u64 %p0, %rd6, %rd4;
  @%p0 bra done;
  mov.u32 %r3, %tid.x;
  cvt.u64.u32 %rd9, %r3;
cols:
  setp.ge.u64 %p1, %rd9, %rd5;
  @%p1 bra next;
  mad.lo.u64 %rd10, %rd6, %rd2, %rd9;
  shl.b64 %rd11, %rd10, 2;
  add.u64 %rd12, %rd0, %rd11;
  ld.global.f32 %f1, [%rd12];
  mul.f32 %f2, %f1, %f0;
  mad.lo.u64 %rd13, %rd6, %rd3, %rd9;
  shl.b64 %rd14, %rd13, 2;
  add.u64 %rd15, %rd1, %rd14;
  st.global.f32 [%rd15], %f2;
  add.u64 %rd9, %rd9, %rd8;
  bra cols;
next:
  add.u64 %rd6, %rd6, %rd7;
  bra rows;
done:
  ret;
}
)";
}

/// Each of 16 blocks of a cluster adds its rank to a number in block 0's shared memory; block 0 stores the sum.
inline std::string cluster_ptx() {
  return R"(.version 8.0
.target sm_90
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry cluster_kernel(.param .u64 p_out)
{
  .reg .pred %p<4>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %cluster_ctarank;
  mov.u32 %r2, dynamic;
  setp.eq.u32 %p0, %r0, 0;
  setp.eq.u32 %p1, %r1, 0;
  and.pred %p2, %p0, %p1;
  mov.u32 %r3, 0;
  @%p2 st.shared.u32 [%r2], %r3;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  mapa.shared::cluster.u32 %r4, %r2, 0;
  @%p0 atom.shared::cluster.add.u32 %r5, [%r4], %r1;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  ld.param.u64 %rd0, [p_out];
  @%p2 ld.shared.u32 %r6, [%r2];
  @%p2 st.global.u32 [%rd0], %r6;
  ret;
}
)";
}

/// Block (x, y, z) copies the tile of 1 x 8 x 32 f32 at column 32 x, row 8 y and batch z, as it lies in shared memory, to its place
/// in a dense array of such tiles. 256 threads.
inline std::string tile_copy_ptx() {
  return R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry tile_copy(.param .align 64 .b8 p_map[128], .param .u64 p_out)
{
  .reg .pred %p<3>;
  .reg .b32 %r<16>;
  .reg .f32 %f<2>;
  .reg .b64 %rd<6>;
  .shared .align 1024 .b8 tile[1024];
  .shared .align 8 .b64 arrived;
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, tile;
  mov.u32 %r2, arrived;
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ctaid.y;
  mov.u32 %r5, %ctaid.z;
  setp.ne.u32 %p0, %r0, 0;
  @%p0 bra loaded;
  mbarrier.init.shared.b64 [%r2], 1;
  fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 1024;
  mov.b64 %rd0, p_map;
  cvta.param.u64 %rd1, %rd0;
  shl.b32 %r6, %r3, 5;
  shl.b32 %r7, %r4, 3;
  cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r6, %r7, %r5}], [%r2];
loaded:
  bar.sync 0;
wait:
  mbarrier.try_wait.parity.shared.b64 %p1, [%r2], 0;
  @!%p1 bra wait;
  mov.u32 %r8, %nctaid.x;
  mov.u32 %r9, %nctaid.y;
  mad.lo.u32 %r10, %r5, %r9, %r4;
  mad.lo.u32 %r10, %r10, %r8, %r3;
  shl.b32 %r10, %r10, 8;
  add.u32 %r10, %r10, %r0;
  shl.b32 %r11, %r0, 2;
  add.u32 %r11, %r1, %r11;
  ld.shared.f32 %f0, [%r11];
  ld.param.u64 %rd2, [p_out];
  mul.wide.u32 %rd3, %r10, 4;
  add.u64 %rd4, %rd2, %rd3;
  st.global.f32 [%rd4], %f0;
  ret;
}
)";
}

/// Blocks of one thread draw items 0 to n - 1 from a counter and add 1 to out[item]; who draws last sets the counter to 0.
inline std::string draw_work_ptx() {
  return R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry draw_work(.param .u64 p_out, .param .u64 p_n, .param .u64 p_counter)
{
  .reg .pred %p<2>;
  .reg .b32 %r<3>;
  .reg .b64 %rd<9>;
  ld.param.u64 %rd0, [p_out];
  ld.param.u64 %rd1, [p_n];
  ld.param.u64 %rd2, [p_counter];
draw:
  atom.global.add.u32 %r0, [%rd2], 1;
  cvt.u64.u32 %rd3, %r0;
  setp.ge.u64 %p0, %rd3, %rd1;
  @%p0 bra last;
  shl.b64 %rd4, %rd3, 2;
  add.u64 %rd5, %rd0, %rd4;
  red.global.add.u32 [%rd5], 1;
  bra draw;
last:
  mov.u32 %r1, %nctaid.x;
  cvt.u64.u32 %rd6, %r1;
  add.u64 %rd7, %rd6, %rd1;
  sub.u64 %rd8, %rd7, 1;
  setp.eq.u64 %p1, %rd3, %rd8;
  mov.u32 %r2, 0;
  @%p1 st.global.u32 [%rd2], %r2;
  ret;
}
)";
}

/// Grid: all rows, at most 4 blocks a multiprocessor. `workspace`: bytes a row.
inline LaunchRecipe scale_recipe_gpu(std::int64_t workspace = 0) {
  const IntExpr rows = IntExpr::variable("rows"), cols = IntExpr::variable("cols");
  LaunchRecipe recipe;
  recipe.target = "nvptx";
  recipe.arguments = {{"x", ElementType::f32, false, {rows, cols}}, {"y", ElementType::f32, true, {rows, cols}}};
  recipe.sizes = {"rows", "cols"};
  recipe.scalars = {{"alpha", ElementType::f32, 2.0}};
  recipe.workspace_bytes = rows * IntExpr(workspace);
  LaunchNode node;
  node.symbol = "scale_kernel";
  node.grid[0] = min(rows, IntExpr::variable(kUnits) * IntExpr(4));
  node.block = {256, 1, 1};
  using Kind = KernelParam::Kind;
  node.params = {{Kind::pointer, 0, 0, ""},     {Kind::pointer, 1, 0, ""},  {Kind::stride, 0, 0, ""},
                 {Kind::stride, 1, 0, ""},      {Kind::size, 0, 0, "rows"}, {Kind::size, 0, 0, "cols"},
                 {Kind::scalar, 0, 0, "alpha"}, {Kind::workspace, 0, 0, ""}};
  recipe.launches = {node};
  return recipe;
}

}  // namespace nestor::test
