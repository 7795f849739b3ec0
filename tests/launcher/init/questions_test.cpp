#include "launcher/init/questions.h"

#include <catch2/catch.hpp>
#include <sstream>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

using Words = std::vector<std::string>;

const std::vector<Question> kQuestions{
    {"--size", "Size"},
    {.option = "--data", .text = "Data", .must_be_answered = true},
    {"--steps", "Steps", "10"}};

// Refuses --steps=0.
void check_words(const Words& words) {
  for (const std::string& word : words)
    if (word == "--steps=0") fail_user("too few");
}

TEST_CASE("answers become options; an empty one means what is usual, or no option") {
  std::istringstream in("\n  a file \n\n");
  std::ostringstream out;
  CHECK(ask({"--yes"}, kQuestions, check_words, in, out) ==
        Words{"--yes", "--data=a file", "--steps=10"});
  CHECK(out.str() == "Size: Data: Steps [10]: ");
}

TEST_CASE("what an option says is not asked, and what cannot be used is asked again") {
  std::istringstream in("\nd\n0\n3\n");
  std::ostringstream out;
  CHECK(ask({"--size", "5"}, kQuestions, check_words, in, out) ==
        Words{"--size", "5", "--data=d", "--steps=3"});
  CHECK(out.str() == "Data: Data: Steps [10]: too few\nSteps [10]: ");
}

TEST_CASE("an input that ends before the last answer is an error") {
  std::istringstream in("1\n");
  std::ostringstream out;
  CHECK_THROWS_WITH(ask({}, kQuestions, check_words, in, out),
                    "dstrain init was asking for --data, and its standard input has ended");
}

}  // namespace
}  // namespace dstrain
