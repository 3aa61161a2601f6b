// Contenders that are not Halide's: Nestor's own kernels through its runtime, OpenBLAS, and a plain memory copy.
#pragma once

#include "problem.h"

#include <string>

namespace nestor::bench {

/// The best stored kernel, as a program that links the runtime alone gets and launches it.
Prepared prepare_nestor(Problem& problem, const std::string& op, const std::string& variant, const std::string& database,
                        int threads);

/// C[m][n] = A[m][k] B[k][n] by cblas_sgemm. The problem has sizes m, n and k, inputs a and b and one result.
Prepared prepare_sgemm(Problem& problem, int threads);

/// Copies as many bytes as the results of `problem` have, each thread its own contiguous part, by memcpy.
Prepared prepare_copy(Problem& problem, int threads);

/// Most f32 operations in a second (a multiply-add counts as two) that the threads reach with registers alone.
double peak_flops(int threads);

}  // namespace nestor::bench
