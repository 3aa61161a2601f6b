// Linear forms: arithmetic and substitution leave no zero terms.
#include "poly/isl/linear_form.h"

#include <gtest/gtest.h>

namespace nestor {
namespace {

TEST(LinearForm, AddsAndCancels) {
  LinearForm form = LinearForm::variable("i");
  form.add(LinearForm::variable("j"), 64).add(LinearForm{{}, 3});
  EXPECT_EQ(form.str(), "1*(i) + 64*(j) + 3");
  form.add(LinearForm::variable("j"), -64);
  EXPECT_EQ(form.terms.size(), 1U);
  form.add(form, -1);
  EXPECT_EQ(form, LinearForm{});
  EXPECT_EQ(form.str(), "0");
}

TEST(LinearForm, SubstitutesALoopByItsParts) {
  LinearForm parts = LinearForm::variable("ii");
  parts.add(LinearForm::variable("io"), 32);
  LinearForm form{{{"i", 2}, {"ii", -2}}, -5};
  form = form.substitute("i", parts);
  EXPECT_EQ(form.coefficient("io"), 64);
  EXPECT_EQ(form.coefficient("ii"), 0);
  EXPECT_EQ(form.str(), "64*(io) - 5");
  EXPECT_EQ(form.substitute("absent", parts), form);
}

}  // namespace
}  // namespace nestor
