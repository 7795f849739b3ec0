// Command lines as one text, for tests of the command line.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "launcher/cli/parse_arguments.h"
#include "models/registry.h"
#include "runtime/core/error.h"

namespace dstrain::test {

// Splits at blanks; the arguments of these tests have none inside.
inline Arguments parse(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return parse_arguments(words, model_registry());
}

// Returns the message of the error that parsing the line throws.
inline std::string error_of(const std::string& line) {
  try {
    parse(line);
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace dstrain::test
