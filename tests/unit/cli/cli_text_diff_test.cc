// Differences of loop nests: what is new, changed and gone, whatever its indentation.
#include "cli/terminal/text_diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(TextDiff, IndentationAloneIsNoDifference) {
  EXPECT_EQ(marked_text("a\nb\n", "a\n  b\n", false), "  a\n    b\n");
  EXPECT_EQ(diff_text("a\nb\n", "a\n  b\n", false), "");
  EXPECT_EQ(diff_text("", "", false), "");
}

TEST(TextDiff, NewAndChangedLinesHaveMarks) {
  const std::string before = "for i in [0, n):\n  out[i]\nfor k in [0, m):\n  sum[k]\n";
  const std::string after = "for io in [0, n/8):\n  for ii in [0, 8):\n    out[8*io + ii]\nfor k in [0, m):\n  sum[k]\n";
  const std::string marked = marked_text(before, after, false);
  EXPECT_THAT(marked, HasSubstr("+   for ii in [0, 8):\n"));
  EXPECT_THAT(marked, HasSubstr("~     out[8*io + ii]\n"));
  EXPECT_THAT(marked, HasSubstr("  for k in [0, m):\n    sum[k]\n"));
  const std::string diff = diff_text(before, after, false, 1);
  EXPECT_THAT(diff, HasSubstr("-   out[i]\n"));
  EXPECT_LT(diff.rfind("\n- "), diff.find("\n+ ")) << diff;
  EXPECT_THAT(diff, Not(HasSubstr("sum[k]")));
}

TEST(TextDiff, LinesThatAreGoneAreInTheDifferenceAlone) {
  EXPECT_EQ(marked_text("a\nb\nc\n", "a\nc\n", false), "  a\n  c\n");
  EXPECT_EQ(diff_text("a\nb\nc\n", "a\nc\n", false), "  a\n- b\n  c\n");
}

TEST(TextDiff, ColourMarksTheNewPartOfALine) {
  EXPECT_EQ(marked_text("for out.i in [0, rows):\n", "parallel for out.i in [0, rows):\n", true),
            "\033[33m~ \033[0m\033[33mparallel \033[0mfor out.i in [0, rows):\n");
}

TEST(TextDiff, ForeignControlCharactersAreShown) { EXPECT_EQ(marked_text("", "a\033[31mb\n", false), "+ a\\x1b[31mb\n"); }

TEST(TextDiff, HugeTextsAreComparedByTheirEnds) {
  std::string before = "same\n", after = "same\n";
  for (int k = 0; k < 3000; ++k) before += "old" + std::to_string(k) + "\n", after += "new" + std::to_string(k) + "\n";
  const std::string diff = diff_text(before + "end\n", after + "end\n", false);
  EXPECT_THAT(diff, testing::StartsWith("  same\n- old0\n"));
  EXPECT_THAT(diff, testing::EndsWith("+ new2999\n  end\n"));
}

}  // namespace
}  // namespace nestor::cli
