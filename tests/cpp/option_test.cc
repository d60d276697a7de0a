// Options: defaults, bounds, choices, conversions, and what is said of a value that is not allowed.
#include "mudd/base/option.h"

#include <cmath>
#include <limits>
#include <vector>

#include "compare.h"
#include "mudd/base/check.h"

using namespace mudd;

namespace {

const Option kRate = option::number("rate", 0.5, from_to_below(0, 1), "a fraction"),
             kCount = option::integer("count", 2, from_to(1, 8), "a count"),
             kOn = option::flag("on", true, "a flag"),
             kKind = option::word("kind", "a", {"a", "b", "c"}, "a word"),
             kName = option::word("name", "", {}, "any word");

}  // namespace

TEST_CASE("bounds: inclusive and open ends, finite numbers alone") {
  CHECK((from_to(1, 2).contain(1) && from_to(1, 2).contain(2)));
  CHECK_FALSE((from_to(1, 2).contain(0.5) || from_to(1, 2).contain(2.5)));
  CHECK((from_to_below(0, 1).contain(0) && !from_to_below(0, 1).contain(1)));
  CHECK((at_least(0).contain(0) && !at_least(0).contain(-1)));
  CHECK((above(0).contain(1e-300) && !above(0).contain(0)));
  for (const double bad : {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()})
    CHECK_FALSE(Bounds{}.contain(bad));
}

TEST_CASE("what an option expects, in words") {
  CHECK(kRate.expected() == "a number in [0, 1)");
  CHECK(option::number("x", 1, Bounds{.low = 0, .high = 1, .low_open = true}, "").expected() ==
        "a number in (0, 1]");
  CHECK(option::number("x", 1, at_least(0.5), "").expected() == "a number >= 0.5");
  CHECK(option::number("x", 1, above(0), "").expected() == "a number > 0");
  CHECK(option::number("x", 1, {}, "").expected() == "a finite number");
  CHECK(kCount.expected() == "1 to 8");
  CHECK(option::integer("x", 1, at_least(1), "").expected() == "at least 1");
  CHECK(option::integer("x", 1, at_least(1 << 24), "").expected() == "at least 16777216");
  CHECK(option::integer("x", 1, {}, "").expected() == "an int");
  CHECK(kOn.expected() == "a bool");
  CHECK(kKind.expected() == "a, b or c");
  CHECK(kName.expected() == "a str");
}

TEST_CASE("a value of the type and within the bounds is taken; an int is a number too") {
  CHECK(std::get<double>(kRate.checked("op", 0.25)) == 0.25);
  CHECK(std::get<double>(kRate.checked("op", int64_t{0})) == 0.0);
  CHECK(std::get<int64_t>(kCount.checked("op", int64_t{8})) == 8);
  CHECK_FALSE(std::get<bool>(kOn.checked("op", false)));
  CHECK(std::get<std::string>(kKind.checked("op", std::string("c"))) == "c");
  CHECK(std::get<std::string>(kName.checked("op", std::string("x"))) == "x");
}

TEST_CASE("any other value is refused with the owner, the option, what was expected and what came") {
  CHECK_THROWS_WITH_AS(kRate.checked("op", 1.0), "[op] rate: expected a number in [0, 1), got 1", Error);
  CHECK_THROWS_WITH_AS(kRate.checked("op", int64_t{3}), "[op] rate: expected a number in [0, 1), got 3", Error);
  CHECK_THROWS_WITH_AS(kCount.checked("op", int64_t{9}), "[op] count: expected 1 to 8, got 9", Error);
  CHECK_THROWS_WITH_AS(kKind.checked("op", std::string("d")), "[op] kind: expected a, b or c, got 'd'", Error);
  CHECK_THROWS_WITH_AS(kRate.checked("op", true), "[op] rate: expected a number, got True", TypeMistake);
  CHECK_THROWS_WITH_AS(kCount.checked("op", 2.0), "[op] count: expected an int, got 2", TypeMistake);
  CHECK_THROWS_WITH_AS(kOn.checked("op", int64_t{1}), "[op] on: expected a bool, got 1", TypeMistake);
  CHECK_THROWS_WITH_AS(kName.checked("op", false), "[op] name: expected a str, got False", TypeMistake);
}

TEST_CASE("given values are checked by their declarations; an unknown name lists those there") {
  const std::vector<Option> declared = {kRate, kCount};
  const OptionValues found = option::checked("op", declared, {{"rate", int64_t{0}}});
  CHECK((found.size() == 1 && std::get<double>(found.at("rate")) == 0.0));
  CHECK(option::find(declared, "count") == &declared[1]);
  CHECK(option::find(declared, "counts") == nullptr);
  CHECK_THROWS_WITH_AS(option::checked("op", declared, {{"on", true}}),
                       "[op] option 'on' is unknown; known: rate, count", Error);
}
