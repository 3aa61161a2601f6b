// Kernel arguments: what a kernel's code refers to, as values of LLVM IR.
#pragma once

#include "support/int_expr.h"

#include <llvm/IR/IRBuilder.h>

#include <map>
#include <string>
#include <utility>

namespace nestor::nvptx {

/// What a kernel receives, as IR values.
struct KernelArguments {
  std::map<int, llvm::Value*> pointers;                 ///< by buffer
  std::map<std::pair<int, int>, llvm::Value*> strides;  ///< by buffer and index, i64
  std::map<std::string, llvm::Value*> integers;         ///< sizes, launch loops and block coordinates, i64
  std::map<std::string, llvm::Value*> scalars;          ///< in their register type
  llvm::Value* workspace = nullptr;
  llvm::Value* counter = nullptr;            ///< address of a u32, zero at first; null where no work tiles are drawn
  std::map<int, IntExpr> workspace_offsets;  ///< bytes, by buffer
  llvm::Value* cluster_rank = nullptr;       ///< i32, of the block in its cluster; null without clusters
};

}  // namespace nestor::nvptx
