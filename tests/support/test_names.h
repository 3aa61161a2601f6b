// Names of tests for each variant of an operator.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

namespace nestor::testing {

/// "attention_causal_f16"
inline std::string operator_test_name(const std::string& op, const std::string& variant) {
  std::string name = op + "_" + variant;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

/// Of tests whose parameter is an operator and its variant.
inline std::string variant_test_name(const ::testing::TestParamInfo<std::pair<std::string, std::string>>& info) {
  return operator_test_name(info.param.first, info.param.second);
}

}  // namespace nestor::testing
