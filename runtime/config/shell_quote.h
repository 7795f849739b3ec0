// Quotes words for a POSIX shell. This is the only place where words become text for a shell, the one on ssh's remote
// side; everything else starts programs with argument vectors. Pure.
#pragma once

#include <string>
#include <vector>

namespace dstrain {

// Returns `word` such that a shell reads it as exactly one word, whatever bytes it has except zero. Words that a shell
// does not change stay as they are.
std::string shell_quoted(const std::string& word);

// Returns whether a shell leaves `word` unchanged without quotes, so that it may pass through programs that quote
// wrongly or not at all.
bool safe_without_quotes(const std::string& word);

// Returns a command line that a shell runs as exactly these words. The first is taken as a program, never as a keyword
// or an assignment.
std::string shell_command(const std::vector<std::string>& words);

}  // namespace dstrain
