// Words and numbers as people write them.
#include "support/words/device_words.h"
#include "support/words/nearest_word.h"
#include "support/words/whole_number.h"

#include <gtest/gtest.h>

#include <limits>

namespace nestor {
namespace {

TEST(NearestWord, IsTheOneWithTheFewestSlips) {
  const std::vector<std::string> known{"matmul", "matvec", "softmax", "log_softmax"};
  EXPECT_EQ(nearest_word("matmull", known), "matmul");
  EXPECT_EQ(nearest_word("amtvec", known), "matvec");
  EXPECT_EQ(nearest_word("SOFTMAX", known), "softmax");
  EXPECT_EQ(nearest_word("sfotmax", known), "softmax");
  EXPECT_EQ(nearest_word("attention", known), std::nullopt);
  EXPECT_EQ(nearest_word("", known), std::nullopt);
  EXPECT_EQ(nearest_word("z", {"m", "n"}), std::nullopt);
  EXPECT_EQ(nearest_word("m", {"M", "N"}), "M");
  EXPECT_EQ(nearest_word(std::string(100000, 'm'), known), std::nullopt);
  EXPECT_EQ(did_you_mean("matmul", known), "");
  EXPECT_EQ(did_you_mean("matmu", known), "; did you mean 'matmul'?");
}

TEST(DeviceWords, SlipsPartsAndOtherNames) {
  const std::vector<std::string> targets{"host", "cuda", "cuda:1", "cuda/sm_80", "cuda/sm_90"};
  const auto said = [](const std::string& word) { return "; did you mean '" + word + "'?"; };
  EXPECT_EQ(meant_device("hots", targets), said("host"));
  EXPECT_EQ(meant_device("cude:1", targets), said("cuda:1"));
  EXPECT_EQ(meant_device("sm_90", targets), said("cuda/sm_90"));
  EXPECT_EQ(meant_device("SM80", targets), said("cuda/sm_80"));
  EXPECT_EQ(meant_device("cpu", targets), said("host"));
  for (const char* gpu : {"gpu", "h100", "H100", "rtx4090", "l40s", "b200"})
    EXPECT_EQ(meant_device(gpu, targets), said("cuda")) << gpu;
  EXPECT_EQ(meant_device("h100", {"sm_80", "sm_90"}), said("sm_90"));
  EXPECT_EQ(meant_device("cuda/sm_80", {"sm_80", "sm_90"}), said("sm_80"));
  EXPECT_EQ(meant_device("h100", {"host", "cuda", "NVIDIA H200"}), said("H200")) << "a word of a name";
  EXPECT_EQ(meant_device("toaster", targets), "");
  EXPECT_EQ(meant_device("", targets), "");
  EXPECT_EQ(meant_device(std::string(100000, 'h'), targets), "");
}

TEST(WholeNumber, DigitsPowersAndUnits) {
  EXPECT_EQ(whole_number("4096"), 4096);
  EXPECT_EQ(whole_number("-5"), -5);
  EXPECT_EQ(whole_number("1e6"), 1000000);
  EXPECT_EQ(whole_number("2.5e3"), 2500);
  EXPECT_EQ(whole_number("-1.5e1"), -15);
  EXPECT_EQ(whole_number("4k"), 4096);
  EXPECT_EQ(whole_number("4K"), 4096);
  EXPECT_EQ(whole_number("3M"), 3 << 20);
  EXPECT_EQ(whole_number("2G"), std::int64_t{2} << 30);
  EXPECT_EQ(whole_number("9223372036854775807"), std::numeric_limits<std::int64_t>::max());
}

TEST(WholeNumber, NothingElse) {
  for (const char* text : {"",
                           "k",
                           "e3",
                           "1e",
                           "1.5",
                           ".5e1",
                           "5.e1",
                           "-.5e1",
                           "2.55e1",
                           "1e-3",
                           "1e30",
                           "1e99999999999999999999",
                           "9223372036854775808",
                           "9007199254740993k0",
                           "9223372036854775807k",
                           "1 000",
                           "0x10",
                           "1e3k",
                           "nan",
                           "--5"})
    EXPECT_EQ(whole_number(text), std::nullopt) << text;
}

}  // namespace
}  // namespace nestor
