// Every complaint about a nest names the offender.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_json.h"
#include "support/error_text.h"
#include "support/nests/sample_nests.h"
#include "support/system/json_text.h"

namespace nestor {
namespace {

using samples::number;
using samples::read;
using samples::operator*;
using test::message_of;

/// What validate says of matmul after `spoil` has changed it.
std::string complaint(const std::function<void(Nest&)>& spoil) {
  Nest nest = samples::matmul();
  spoil(nest);
  return message_of([&] { validate(nest); });
}

bool is_well_formed(const std::function<void(Nest&)>& change) {
  Nest nest = samples::matmul();
  change(nest);
  try {
    validate(nest);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

TEST(NestError, UnknownSizeListsTheSizes) {
  EXPECT_EQ(message_of([] { fix_sizes(samples::matmul(), {{"Z", 3}}); }),
            "matmul has no size named \"Z\"; its sizes are M, N, K");
  EXPECT_EQ(message_of([] { complete_sizes(samples::matmul(), {{"Z", 3}}); }),
            "matmul has no size named \"Z\"; its sizes are M, N, K");
}

TEST(NestError, NamesAndToleranceOfAnOperator) {
  EXPECT_EQ(complaint([](Nest& n) { n.op = ""; }), "the nest has no name: its op is \"\"");
  EXPECT_THAT(complaint([](Nest& n) { n.op = std::string("a\0b", 3); }), testing::HasSubstr("a\\x00b, has control characters"));
  EXPECT_THAT(complaint([](Nest& n) { n.variant = "f32\n"; }),
              testing::HasSubstr("of nest matmul, f32\\x0a, has control characters"));
  for (const double tolerance : {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THAT(complaint([&](Nest& n) { n.tolerance = tolerance; }), testing::HasSubstr("nest matmul: its tolerance is"))
        << tolerance;
  EXPECT_TRUE(is_well_formed([](Nest& n) { n.tolerance = 0; }));
}

TEST(NestError, SizesBelowTheirMinimum) {
  EXPECT_EQ(message_of([] { fix_sizes(samples::matmul(), {{"M", 0}}); }), "size M of matmul is 0; it must be at least 1");
  EXPECT_EQ(message_of([] { fix_sizes(samples::matmul(), {{"M", -4}}); }), "size M of matmul is -4; it must be at least 1");
}

TEST(NestError, SizesOutsideTheContext) {
  EXPECT_THAT(message_of([] { complete_sizes(samples::seidel(), {{"Y", 2}}); }),
              testing::HasSubstr("not defined for T=3, X=7, Y=2"));
}

TEST(NestError, WrongShapesOfAccesses) {
  EXPECT_THAT(complaint([](Nest& n) {
                n.statements[1].reads[0].relation = parse_map("[M, N, K] -> { C_update[i, j, k] -> A[i] }", "t");
              }),
              testing::HasSubstr("statement C_update, access to A: it must map C_update[3 dims] to A[2 indices]"));
  EXPECT_THAT(complaint([](Nest& n) {
                n.statements[1].reads[0].relation = parse_map("[M, N, K] -> { C_update[i, j, k] -> A[i, l] }", "t");
              }),
              testing::HasSubstr("several elements"));
  EXPECT_THAT(complaint([](Nest& n) {
                n.statements[1].reads[0].relation = parse_map("[M, N, K] -> { C_update[i, j, k] -> A[i, k + 1] }", "t");
              }),
              testing::HasSubstr("outside the tensor"));
  EXPECT_THAT(complaint([](Nest& n) {
                n.statements[1].reads[0].relation = parse_map("[M, N, K] -> { C_update[i, j, k] -> A[i, k] : k > 0 }", "t");
              }),
              testing::HasSubstr("has no element for instances"));
  EXPECT_THAT(complaint([](Nest& n) { n.statements[1].reads[0].tensor = "X"; }),
              testing::HasSubstr("access to X: no such tensor"));
}

TEST(NestError, WrongDomains) {
  EXPECT_THAT(
      complaint([](Nest& n) { n.statements[0].domain = parse_set("[M, N] -> { C_init[i, j] : 0 <= i < M and j >= 0 }", "t"); }),
      testing::HasSubstr("does not bound j"));
  EXPECT_THAT(complaint([](Nest& n) {
                n.statements[0].domain = parse_set("[M, Z] -> { C_init[i, j] : 0 <= i < M and 0 <= j < Z }", "t");
              }),
              testing::HasSubstr("uses Z, which is no size"));
  EXPECT_THAT(complaint([](Nest& n) { n.statements[0].dims = {"i", "i"}; }), testing::HasSubstr("cannot name a dimension"));
  EXPECT_THAT(complaint([](Nest& n) { n.statements[1].name = "C_init"; }), testing::HasSubstr("two statements are named C_init"));
}

TEST(NestError, AccumulatorsMustBeInitialised) {
  EXPECT_THAT(complaint([](Nest& n) { n.statements.erase(n.statements.begin()); }), testing::HasSubstr("were not initialised"));
  EXPECT_THAT(complaint([](Nest& n) {
                n.statements[0].domain = parse_set("[M, N, K] -> { C_init[i, j] : 0 <= i < M and 1 <= j < N }", "t");
              }),
              testing::HasSubstr("j = 0"));
}

TEST(NestError, TemporariesMustBeWrittenBeforeTheyAreRead) {
  Nest nest = samples::scores_softmax_values();
  std::swap(nest.statements[2], nest.statements[4]);
  std::swap(nest.statements[2].group, nest.statements[4].group);
  EXPECT_THAT(message_of([&] { validate(nest); }), testing::HasSubstr("reads elements of S that were not written before"));
}

TEST(NestError, ValuesMustFitTheirTypes) {
  EXPECT_THAT(complaint([](Nest& n) { n.statements[1].value = read(2); }), testing::HasSubstr("uses read 2, but it has 2"));
  EXPECT_THAT(complaint([](Nest& n) { n.statements[1].value = read(0, ElementType::f16); }),
              testing::HasSubstr("reads A as f16"));
  EXPECT_THAT(complaint([](Nest& n) { n.statements[1].value = ScalarExpr::index(0); }), testing::HasSubstr("uses index 0"));
  EXPECT_THAT(complaint([](Nest& n) { n.statements[0].value = ScalarExpr::constant(0, ElementType::i32); }),
              testing::HasSubstr("writes a value of type i32 to C"));
  EXPECT_THAT(complaint([](Nest& n) {
                n.scalars.push_back({"eps", ElementType::f32, 0.0});
                n.scalars.back().minimum = 1;
              }),
              testing::HasSubstr("scalar eps: its default 0 is not within its range, 1 to inf"));
  EXPECT_THAT(complaint([](Nest& n) { n.statements[0].value = ScalarExpr::scalar("eps", ElementType::f32); }),
              testing::HasSubstr("has no scalar eps"));
  EXPECT_THAT(complaint([](Nest& n) {
                n.tensors[0].type = ElementType::f16;
                n.statements[1].value = read(0, ElementType::f16) * read(0, ElementType::f16);
              }),
              testing::HasSubstr("no arithmetic on f16"));
  EXPECT_THAT(complaint([](Nest& n) { n.statements[0].write.tensor = "A"; }), testing::HasSubstr("access to A"));
}

TEST(NestError, FunctionsAndBitsHaveATypeOfTheirOwn) {
  const auto with = [](ScalarOp op, ElementType type) {
    return [op, type](Nest& n) {
      for (Tensor& tensor : n.tensors) tensor.type = type;
      const ScalarExpr element = ScalarExpr::read(0, type);
      n.statements[0].value = ScalarExpr::constant(0, type);
      n.statements[1].value = ScalarExpr::make(op, arity(op) == 1 ? std::vector{element} : std::vector{element, element});
    };
  };
  for (const ScalarOp op :
       {ScalarOp::exp, ScalarOp::exp2, ScalarOp::log, ScalarOp::sqrt, ScalarOp::rsqrt, ScalarOp::tanh, ScalarOp::erf,
        ScalarOp::sin, ScalarOp::cos, ScalarOp::log1p, ScalarOp::expm1, ScalarOp::atan, ScalarOp::pow}) {
    EXPECT_THAT(complaint(with(op, ElementType::i32)),
                testing::HasSubstr(std::string(to_string(op)) + " takes f32, not i32; cast it"));
    EXPECT_TRUE(is_well_formed(with(op, ElementType::f32)));
  }
  for (const ScalarOp op : {ScalarOp::bit_and, ScalarOp::bit_or, ScalarOp::bit_xor, ScalarOp::shift_left,
                            ScalarOp::shift_right_logical, ScalarOp::mul_high_unsigned}) {
    EXPECT_THAT(complaint(with(op, ElementType::f32)),
                testing::HasSubstr(std::string(to_string(op)) + " takes i32, not f32; cast it"));
    EXPECT_TRUE(is_well_formed(with(op, ElementType::i32)));
  }
}

TEST(NestError, IndicesAreIntegersAndScalarsAreOfTheirType) {
  const auto indexed = [](const std::string& index) {
    return [index](Nest& n) {
      Statement& update = n.statements[1];
      update.indices = {parse_pw_aff(index, "test")};
      update.value = ScalarExpr::cast(ElementType::f32, ScalarExpr::index(0));
    };
  };
  const std::string tuple = fmt::format("{}[i, j, k]", samples::matmul().statements[1].name);
  EXPECT_THAT(complaint(indexed("{ " + tuple + " -> [(i/2)] }")), testing::HasSubstr("is no integer at"));
  EXPECT_TRUE(is_well_formed(indexed("{ " + tuple + " -> [(floor(i/2))] }")));
  const auto scalar = [](ElementType type, double value) {
    return [type, value](Nest& n) { n.scalars.push_back({"eps", type, value}); };
  };
  EXPECT_THAT(complaint(scalar(ElementType::i32, 0x1p40)), testing::HasSubstr("scalar eps: its default 1099511627776 is no i32"));
  EXPECT_THAT(complaint(scalar(ElementType::i32, 0.5)), testing::HasSubstr("its default 0.5 is no i32"));
  EXPECT_THAT(complaint(scalar(ElementType::f32, 1e300)), testing::HasSubstr("its default 1e+300 is no f32"));
  EXPECT_THAT(complaint(scalar(ElementType::f16, 0)), testing::HasSubstr("scalars are f32 or i32"));
  EXPECT_TRUE(is_well_formed(scalar(ElementType::f32, -std::numeric_limits<double>::infinity())));
}

TEST(NestError, NothingIsAccumulatedInSixteenBits) {
  EXPECT_THAT(complaint([](Nest& nest) {
                nest.tensors[0].type = ElementType::f16;
                nest.statements[1].value = read(0, ElementType::f16);
              }),
              testing::HasSubstr("accumulates values of type f16; cast them to f32"));
}

TEST(NestError, WideIntegersAreInputsThatBecomeI32) {
  EXPECT_THAT(complaint([](Nest& n) { n.tensors[2].type = ElementType::i64; }),
              testing::HasSubstr("tensor C is of type i64 and no input: outputs and temporaries hold i32"));
  const auto read_as = [](const std::function<ScalarExpr(const ScalarExpr&)>& use) {
    return complaint([&](Nest& n) {
      n.tensors[0].type = ElementType::i64;
      n.statements[1].value = use(read(0, ElementType::i64));
    });
  };
  EXPECT_THAT(read_as([](const ScalarExpr& a) { return a * a; }),
              testing::HasSubstr("statement C_update: no arithmetic on i64; cast it to i32 before mul"));
  EXPECT_THAT(read_as([](const ScalarExpr& a) { return ScalarExpr::cast(ElementType::f32, a); }),
              testing::HasSubstr("no arithmetic on i64; cast it to i32 before cast"));
  EXPECT_THAT(read_as([](const ScalarExpr& a) { return a; }),
              testing::HasSubstr("writes a value of type i64 to C, whose elements are f32; cast it"));
  EXPECT_THAT(complaint([](Nest& n) { n.statements[0].value = ScalarExpr::constant(0, ElementType::i64); }),
              testing::HasSubstr("constant makes an i64; the integers of values are i32"));
  Nest good = samples::matmul();
  good.tensors[0].type = ElementType::i64;
  good.statements[1].value =
      ScalarExpr::cast(ElementType::f32, ScalarExpr::cast(ElementType::i32, read(0, ElementType::i64))) * read(1);
  EXPECT_NO_THROW(validate(good));
}

TEST(NestError, TruthValuesAreStoredAsSuch) {
  const auto as_bool = [](const ScalarExpr& start, const ScalarExpr& update) {
    return complaint([&](Nest& n) {
      n.tensors[2].type = ElementType::boolean;
      n.statements[0].value = start;
      n.statements[1].value = update;
    });
  };
  const ScalarExpr no = ScalarExpr::constant(0, ElementType::boolean);
  EXPECT_THAT(as_bool(no, no), testing::HasSubstr("accumulates into C, whose elements are bool; accumulate i32 or f32"));
  EXPECT_THAT(as_bool(number(0), no), testing::HasSubstr("writes a value of type f32 to C, whose elements are bool; cast it"));
  EXPECT_THAT(complaint([](Nest& n) { n.statements[0].value = ScalarExpr::constant(0, ElementType::boolean); }),
              testing::HasSubstr("writes a value of type bool to C, whose elements are f32; cast it"));
}

TEST(NestError, TolerancesAreOfOutputs) {
  EXPECT_THAT(complaint([](Nest& n) { n.tensors[0].tolerance = 1e-3; }),
              testing::HasSubstr("tensor A has a tolerance and is no output: only outputs are compared"));
  EXPECT_THAT(complaint([](Nest& n) { n.tensors[2].tolerance = -1.0; }),
              testing::HasSubstr("tensor C: its tolerance is -1; it must be a number that is not negative"));
}

TEST(NestError, InputsAreNotWritten) {
  EXPECT_THAT(complaint([](Nest& n) { n.tensors[2].role = TensorRole::input; }),
              testing::HasSubstr("writes C, which is an input"));
}

TEST(NestError, IslTextsThatIslDoesNotSurviveAreRefused) {
  for (const char* bad : {"0 // 0", "n + (3 //0)", "7 //\n00", "n // -2", "8 // (1 - 1)", "8 //", "1 // 2 // 0"})
    EXPECT_THAT(message_of([&] { parse_set(fmt::format("[n] -> {{ [i] : i < {} }}", bad), "domain"); }),
                testing::HasSubstr("only a positive number may follow //"))
        << bad;
  std::string many = "[n] -> { [i";
  for (int k = 0; k < 64; ++k) many += ", i % 8";
  EXPECT_THAT(message_of([&] { parse_set(many + "] }", "domain"); }), testing::HasSubstr("has more than 64 entries"));
  EXPECT_TRUE(parse_set("[n] -> { [i] : i < 17 // 10 }", "domain").is_equal(parse_set("[n] -> { [i] : i < 1 }", "domain")));
  EXPECT_THAT(message_of([] { parse_pw_aff("[n] -> { [(NaN)] }", "shape"); }), testing::HasSubstr("is not a number everywhere"));
}

TEST(NestError, FilesNameTheOffendingKey) {
  nlohmann::json json = nest_to_json(samples::matmul());
  const auto with = [&](const std::string& pointer, const nlohmann::json& value) {
    nlohmann::json changed = json;
    changed[nlohmann::json::json_pointer(pointer)] = value;
    return message_of([&] { nest_from_json(changed); });
  };
  EXPECT_THAT(with("/statements/1/domain", "nonsense"),
              testing::HasSubstr("statements[1].domain: \"nonsense\" is not an isl set"));
  EXPECT_THAT(with("/statements/1/value/op", "sinh"),
              testing::HasSubstr("statements[1].value.op: \"sinh\" is no scalar operation"));
  std::string slow = "[n] -> { s[i, j] -> a";
  for (int k = 0; k < 80; ++k) slow += "[floor((i)/4), 2i + 3*(j - 1), i % 8] ";
  EXPECT_THAT(with("/statements/1/reads/0/relation", slow),
              testing::HasSubstr("statements[1].reads[0].relation takes more than"));
  const nlohmann::json shared = {{"shared", nlohmann::json::array()}, {"value", {{"op", "shared"}, {"ordinal", 0}}}};
  EXPECT_THAT(with("/statements/1/value", shared),
              testing::HasSubstr("statements[1].value.value: there are 0 shared expressions"));
  EXPECT_THAT(with("/tensors/0/type", "f64"), testing::HasSubstr("tensors[0].type: \"f64\" is no element type"));
  EXPECT_THAT(with("/tensors/0/role", 3), testing::HasSubstr("tensors[0].role must be a string"));
  EXPECT_THAT(with("/format", 99), testing::HasSubstr("of format 99"));
  EXPECT_THAT(with("/statements/1/reductoin", "add"),
              testing::HasSubstr("statements[1]: there is no key \"reductoin\"; the keys are name, "));
  EXPECT_THAT(with("/maximum", 3), testing::HasSubstr("nest: there is no key \"maximum\""));
  EXPECT_THAT(with("/tensors/0/shap", 3), testing::HasSubstr("tensors[0]: there is no key \"shap\""));
  const nlohmann::json large = {{"op", "constant"}, {"number", 1e300}, {"type", "f32"}};
  EXPECT_THAT(with("/statements/0/value", large), testing::HasSubstr("1e+300 is beyond the numbers of f32"));
  EXPECT_THAT(message_of([] { json_from_text(R"({"a": 1, "b": [{"a": 2}, {"a": 3}], "a": 4})", "it"); }),
              testing::HasSubstr("it has an object with the key \"a\" twice"));
  EXPECT_EQ(json_from_text(R"({"a": 1, "b": [{"a": 2}, {"a": 3}], "c": {"a": 4}})", "it")["b"][1]["a"], 3);
  json.erase("context");
  EXPECT_EQ(message_of([&] { nest_from_json(json); }), "nest: the key \"context\" is missing");
  EXPECT_THAT(message_of([] { load_nest("/nonexistent/x.nest.json"); }),
              testing::HasSubstr("cannot read /nonexistent/x.nest.json: No such file"));
}

}  // namespace
}  // namespace nestor
