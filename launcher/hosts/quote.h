// Quoting: the one place where words become text for a shell, that of ssh's remote side. Everything
// else starts programs with argument vectors. Stands on nothing; pure.
#pragma once

#include <string>
#include <vector>

namespace dstrain {

// `word` so that a POSIX shell reads exactly it, as one word, whatever bytes it has (no zero byte can be
// in a command). Words that no shell would touch stay as they are.
std::string shell_quoted(const std::string& word);

// Whether a shell leaves `word` as it is without quotes: what may go through programs that quote badly
// or not at all.
bool safe_without_quotes(const std::string& word);

// A command line that a POSIX shell runs as exactly these words, the first one being the program: never
// a keyword or an assignment.
std::string shell_command(const std::vector<std::string>& words);

}  // namespace dstrain
