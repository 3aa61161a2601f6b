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

/// The same of rows of two tensors, of which a block must know both lengths.
nlohmann::json two_rows_nest(std::int64_t rows) {
  using namespace samples;
  NestBuilder builder("spreads", {{"rows", rows}, {"width", 1024}, {"length", 2048}});
  const std::string row = "0 <= i < rows";
  for (const std::string size : {"width", "length"}) builder.tensor("x_" + size, TensorRole::input, {"rows", size});
  for (const std::string size : {"width", "length"}) {
    const auto of = [&](const std::string& name, const std::string& index) { return name + "_" + size + index; };
    const std::string element = row + " and 0 <= k < " + size;
    builder.tensor(of("total", ""), TensorRole::temporary, {"rows"})
        .tensor(of("difference", ""), TensorRole::temporary, {"rows", size})
        .tensor(of("square", ""), TensorRole::temporary, {"rows"})
        .tensor(of("out", ""), TensorRole::output, {"rows", size})
        .statement(of("total_init", "[i] : ") + row, of("total", "[i]"), {}, number(0))
        .statement(of("total", "[i, k] : ") + element, of("total", "[i]"), {of("x", "[i, k]")}, read(0), ReductionOp::add)
        .statement(of("difference", "[i, k] : ") + element, of("difference", "[i, k]"), {of("x", "[i, k]"), of("total", "[i]")},
                   read(0) - read(1))
        .statement(of("square_init", "[i] : ") + row, of("square", "[i]"), {}, number(0))
        .statement(of("square", "[i, k] : ") + element, of("square", "[i]"), {of("difference", "[i, k]")}, read(0) * read(0),
                   ReductionOp::add)
        .statement(of("out", "[i, k] : ") + element, of("out", "[i, k]"), {of("difference", "[i, k]"), of("square", "[i]")},
                   read(0) * read(1));
  }
  return nest_to_json(builder.build());
}

/// What tune says of it. No kernel runs on the fake driver.
nlohmann::json tuned(const nlohmann::json& nest) {
  const TemporaryFolder folder;
  const std::string file = folder.file("spread.nest.json");
  write_whole(file, nest.dump());
  const Outcome outcome =
      run_nestor({"tune", file, "--target", "cuda", "--trials", "1", "--db", folder.file("t.db"), "--json"}, "", kFake);
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  return nlohmann::json::parse(outcome.out);
}

TEST(FixedSizes, AreTheLastOneThatLetsRowsFit) {
  EXPECT_EQ(tuned(rows_nest(false)).value("fixed_sizes", nlohmann::json()), nlohmann::json::parse(R"(["width"])"));
}

TEST(FixedSizes, AreNoneWhereTheDefinitionFixesThem) { EXPECT_FALSE(tuned(rows_nest(true)).contains("fixed_sizes")); }

/// Small problems are checked whole in any case.
TEST(FixedSizes, AreThoseThatAreNeededWhereResultsAreMany) {
  const auto fixed = [](std::int64_t rows) { return tuned(two_rows_nest(rows)).value("fixed_sizes", nlohmann::json()); };
  EXPECT_EQ(fixed(8192), nlohmann::json::parse(R"(["length", "width"])"));
  EXPECT_EQ(fixed(64), nlohmann::json::parse(R"(["length", "rows", "width"])"));
}

}  // namespace
}  // namespace nestor::test
