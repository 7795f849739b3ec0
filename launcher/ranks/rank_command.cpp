#include "launcher/ranks/rank_command.h"

#include <cstdlib>

#include "launcher/cli/command_names.h"
#include "launcher/ranks/rank_environment.h"
#include "runtime/config/shell_quote.h"
#include "runtime/core/cpu.h"
#include "runtime/core/error.h"

namespace dstrain {

RankCommand starter_command(int ranks, const std::vector<std::string>& program) {
  RankCommand command{program, {}};
  command.words.insert(command.words.begin() + 1, {kRankStarterCommand, std::to_string(ranks)});
  for (const auto& setting : thread_environment(threads_per_rank(ranks), threads_asked_for()))
    if (std::getenv(setting.first.c_str()) == nullptr) command.environment.push_back(setting);
  return command;
}

std::string command_text(const RankCommand& command) {
  std::string text;
  for (const auto& [name, value] : command.environment)
    text += fmt::format("{}={} ", name, shell_quoted(value));
  for (const std::string& word : command.words) text += shell_quoted(word) + " ";
  text.pop_back();
  return text + "\n";
}

}  // namespace dstrain
