// Digests are the same everywhere, and fields do not run into each other.
#include "support/hash.h"

#include <gtest/gtest.h>

namespace nestor {
namespace {

// Published test value of XXH3-128 for the empty input.
TEST(Hash, IsXxh3With128Bits) { EXPECT_EQ(hash_hex(""), "99aa06d3014798d86001c324468d497f"); }

TEST(Hash, HasThirtyTwoDigits) {
  for (const char* text : {"a", "ab", "a longer text of more than sixteen bytes"}) {
    EXPECT_EQ(hash_hex(text).size(), 32u);
    EXPECT_EQ(hash_hex(text).find_first_not_of("0123456789abcdef"), std::string::npos);
  }
  EXPECT_NE(hash_hex("a"), hash_hex("b"));
}

TEST(Hasher, FieldsDoNotRunIntoEachOther) {
  EXPECT_NE(Hasher().add("ab").add("c").hex(), Hasher().add("a").add("bc").hex());
  EXPECT_NE(Hasher().add("ab").hex(), Hasher().add("ab").add("").hex());
  EXPECT_EQ(Hasher().add("ab").add("c").hex(), Hasher().add("ab").add("c").hex());
}

}  // namespace
}  // namespace nestor
