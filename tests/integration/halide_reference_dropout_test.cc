// Dropout keeps exactly the elements that a second implementation of Philox4x32-10, in plain integers, says it keeps.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "operator.h"
#include "poly/nest/nest_json.h"
#include "random.h"
#include "unit/frontend/frontend_halide_run.h"

namespace {

using Block = std::array<std::uint32_t, 4>;

/// As in Random123's text: a round multiplies words 0 and 2, and the key moves by the golden ratio and sqrt(3) - 1.
Block philox_by_hand(Block c, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * c[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ key[0], static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return c;
}

struct Vector {
  Block counter;
  std::array<std::uint32_t, 2> key;
  Block result;
};

/// philox4x32 10 of Random123's kat_vectors.
const std::vector<Vector>& known_answers() {
  static const std::vector<Vector> all{{{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
                                       {{~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
                                       {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                                        {0xa4093822, 0x299f31d0},
                                        {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
  return all;
}

TEST(Philox, GivesItsAuthorsAnswers) {
  using nestor::kernels::word;
  for (const Vector& known : known_answers()) {
    EXPECT_EQ(philox_by_hand(known.counter, known.key), known.result);
    const auto& c = known.counter;
    const nestor::kernels::Words words =
        nestor::kernels::philox({word(c[0]), word(c[1]), word(c[2]), word(c[3])}, {word(known.key[0]), word(known.key[1])});
    for (std::size_t k = 0; k < 4; ++k) EXPECT_EQ(Halide::evaluate<std::uint32_t>(words[k]), known.result[k]) << k;
  }
}

/// 64-bit seed and offset as the operator takes them: two words each, as signed numbers.
struct Stream {
  std::uint64_t seed, offset;
  double p;
  std::map<std::string, double> scalars() const {
    const auto half = [](std::uint64_t value, int shift) {
      return static_cast<double>(static_cast<std::int32_t>(static_cast<std::uint32_t>(value >> shift)));
    };
    return {{"p", p},
            {"eps", 1e-5},
            {"seed_low", half(seed, 0)},
            {"seed_high", half(seed, 32)},
            {"offset_low", half(offset, 0)},
            {"offset_high", half(offset, 32)}};
  }
  bool keeps(std::int64_t row, std::int64_t column) const {
    const auto low = [](std::uint64_t value) { return static_cast<std::uint32_t>(value); };
    const Block words = philox_by_hand(
        {low(static_cast<std::uint64_t>(column) / 4), low(static_cast<std::uint64_t>(row)), low(offset), low(offset >> 32)},
        {low(seed), low(seed >> 32)});
    return (words[static_cast<std::size_t>(column) % 4] >> 8) * 0x1p-24 >= p;
  }
};

class Dropout : public ::testing::TestWithParam<Stream> {};

TEST_P(Dropout, KeepsWhatPhiloxSays) {
  const Stream& stream = GetParam();
  const auto definition = nestor::kernels::define("bias_dropout_residual_layernorm", "f32");
  const nestor::Nest nest = nestor::nest_from_json(nestor::nest_to_json(nestor::extract_nest(definition)));
  const nestor::Sizes sizes = nestor::complete_sizes(nest, {{"rows", 6}, {"width", 27}});
  const auto inputs = nestor::testing::make_inputs(nest, sizes);
  const auto scalars = stream.scalars();
  nestor::testing::Interpreter interpreter(nest, sizes, scalars, inputs);
  const auto& found = interpreter.run().at("summed");
  int kept = 0;
  for (std::int64_t i = 0; i < 6; ++i) {
    for (std::int64_t c = 0; c < 27; ++c) {
      const std::size_t at = found.at({i, c});
      const double before = inputs.at("x").values[at] + inputs.at("bias").values[static_cast<std::size_t>(c)];
      const double residual = inputs.at("residual").values[at];
      kept += stream.keeps(i, c) ? 1 : 0;
      EXPECT_NEAR(found.values[at], stream.keeps(i, c) ? before / (1 - stream.p) + residual : residual, 1e-6) << i << " " << c;
    }
  }
  EXPECT_NEAR(kept, 162 * (1 - stream.p), 30) << "of 162 elements";
}

INSTANTIATE_TEST_SUITE_P(Streams, Dropout,
                         ::testing::Values(Stream{0, 0, 0.1}, Stream{0xfedcba9876543210ULL, 7, 0.5},
                                           Stream{42, 0xffffffff00000001ULL, 0.0}, Stream{1ULL << 63, 1ULL << 31, 0.75}));

}  // namespace
