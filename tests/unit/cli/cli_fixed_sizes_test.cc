// `nestor tune` fixes a size that it was to leave free where nothing fits a GPU's blocks otherwise, over the fake driver.
#include "integration/run_nestor.h"
#include "poly/nest/nest_json.h"
#include "support/nests/sample_nests.h"
#include "support/temporary_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nestor::test {
namespace {

const std::string kFake = "NESTOR_LIBCUDA=" NESTOR_FAKE_CUDA;

/// out = (x - sum x) * sum (x - sum x)^2 by rows: the differences of a row stay in its block.
nlohmann::json rows_nest(bool fixed_width) {
  using namespace samples;
  const std::string row = "0 <= i < rows", element = row + " and 0 <= k < width";
  const Nest nest =
      NestBuilder("spread", {{"rows", 64}, {"width", 1024}})
          .tensor("x", TensorRole::input, {"rows", "width"})
          .tensor("total", TensorRole::temporary, {"rows"})
          .tensor("difference", TensorRole::temporary, {"rows", "width"})
          .tensor("square", TensorRole::temporary, {"rows"})
          .tensor("out", TensorRole::output, {"rows", "width"})
          .statement("total_init[i] : " + row, "total[i]", {}, number(0))
          .statement("total[i, k] : " + element, "total[i]", {"x[i, k]"}, read(0), ReductionOp::add)
          .statement("difference[i, k] : " + element, "difference[i, k]", {"x[i, k]", "total[i]"}, read(0) - read(1))
          .statement("square_init[i] : " + row, "square[i]", {}, number(0))
          .statement("square[i, k] : " + element, "square[i]", {"difference[i, k]"}, read(0) * read(0), ReductionOp::add)
          .statement("out[i, k] : " + element, "out[i, k]", {"difference[i, k]", "square[i]"}, read(0) * read(1))
          .build();
  nlohmann::json json = nest_to_json(nest);
  for (auto& size : json["sizes"]) size["specialized"] = fixed_width && size["name"] == "width";
  return json;
}

/// What tune says of it. No kernel runs on the fake driver.
nlohmann::json tuned(bool fixed_width) {
  const TemporaryFolder folder;
  const std::string file = folder.file("spread.nest.json");
  write_whole(file, rows_nest(fixed_width).dump());
  const Outcome outcome =
      run_nestor({"tune", file, "--target", "cuda", "--trials", "1", "--db", folder.file("t.db"), "--json"}, "", kFake);
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  return nlohmann::json::parse(outcome.out);
}

TEST(FixedSizes, AreTheLastOneThatLetsRowsFit) {
  EXPECT_EQ(tuned(false).value("fixed_sizes", nlohmann::json()), nlohmann::json::parse(R"(["width"])"));
}

TEST(FixedSizes, AreNoneWhereTheDefinitionFixesThem) { EXPECT_FALSE(tuned(true).contains("fixed_sizes")); }

}  // namespace
}  // namespace nestor::test
