// Questions: what `dstrain init` asks a user for, an option of the command line for each answer.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

namespace dstrain {

// A question, and the option that its answer is the value of.
struct Question {
  std::string option;  // "--data"
  std::string text;    // "Training data: a text, ..."
  std::string
      usual{};  // what an empty answer means, as the option's value; empty: the option is not given
  bool must_be_answered = false;  // an empty answer is none
};

// Asks the questions in order, and again where `parse` refuses the words with the answer, whose message is then shown.
// `words`: the command line so far; a question whose option it has is not asked. `parse` throws UserError. Returns the
// words with the answers. Throws UserError if the input ends before the last answer.
std::vector<std::string> ask(std::vector<std::string> words, const std::vector<Question>& questions,
                             const std::function<void(const std::vector<std::string>&)>& parse,
                             std::istream& in, std::ostream& out);

}  // namespace dstrain
