#include "launcher/init/questions.h"

#include <fmt/format.h>

#include <algorithm>
#include <istream>
#include <ostream>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

bool has_option(const std::vector<std::string>& words, const std::string& option) {
  return std::ranges::any_of(words, [&option](const std::string& word) {
    return word == option || word.starts_with(option + "=");
  });
}

std::string trimmed(const std::string& text) {
  constexpr const char* blanks = " \t\r";
  const size_t begin = text.find_first_not_of(blanks);
  return begin == std::string::npos ? ""
                                    : text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

}  // namespace

std::vector<std::string> ask(std::vector<std::string> words, const std::vector<Question>& questions,
                             const std::function<void(const std::vector<std::string>&)>& parse,
                             std::istream& in, std::ostream& out) {
  for (const Question& question : questions) {
    if (has_option(words, question.option)) continue;
    for (bool answered = false; !answered;) {
      out << question.text << (question.usual.empty() ? "" : fmt::format(" [{}]", question.usual))
          << ": " << std::flush;
      std::string line;
      if (!std::getline(in, line))
        fail_user("dstrain init was asking for {}, and its standard input has ended",
                  question.option);
      std::string answer = trimmed(line);
      if (answer.empty()) answer = question.usual;
      if (answer.empty()) {
        answered = !question.must_be_answered;
        continue;
      }
      std::vector<std::string> with = words;
      with.push_back(question.option + "=" + answer);
      try {
        parse(with);
        words = std::move(with);
        answered = true;
      } catch (const UserError& e) {
        out << e.what() << "\n";
      }
    }
  }
  return words;
}

}  // namespace dstrain
