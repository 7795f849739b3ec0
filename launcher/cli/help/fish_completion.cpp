#include <fmt/format.h>

#include <string_view>

#include "launcher/cli/help/completion.h"

namespace dstrain {
namespace {

// What comes before the table of options; the names of the commands replace the braces.
constexpr const char* kFishHead =
    R"fish(# Completion of dstrain in fish, written by `dstrain help --completion fish`.
function __dstrain_first
  test (count (commandline -opc)) -eq 1
end
function __dstrain_runs
  set -l words (commandline -opc)
  set -l command train
  if set -q words[2]; and contains -- $words[2] {}
    set command $words[2]
  end
  test $command = $argv[1]
end
complete -c dstrain -f
)fish";

// Returns a text between single quotes.
std::string fish_text(std::string_view text) {
  std::string shown = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') shown += '\\';
    shown += c;
  }
  return shown + "'";
}

// Returns the words of `complete` that say what may stand in place of a value.
std::string fish_candidates(const ValueHelp& value) {
  std::string words = known_words(value);
  if (value.files == FileNames::folders)
    words += (words.empty() ? "" : " ") + std::string("(__fish_complete_directories)");
  return (value.files == FileNames::any ? " -F" : "") +
         (words.empty() ? "" : " -a " + fish_text(words));
}

std::string fish_option(const OptionHelp& option) {
  std::string text;
  for (const std::string& name : option.names)
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (!option.value.placeholder.empty()) {
    if (!option.value_optional) text += option.value.files == FileNames::any ? " -r" : " -x";
    text += fish_candidates(option.value);
  }
  return text + " -d " + fish_text(option.does);
}

std::string fish_command(const CommandHelp& command) {
  const std::string begin = fmt::format("complete -c dstrain -n '__dstrain_runs {}'", command.name);
  std::string text;
  ValueHelp further = command.operand;
  for (const OptionHelp& option : all_options(command)) {
    text += begin + fish_option(option) + "\n";
    if (option.several_values) further = option.value;
  }
  const std::string candidates = fish_candidates(further);
  return candidates.empty() ? text : text + begin + candidates + "\n";
}

}  // namespace

std::string fish_completion(const std::vector<CommandHelp>& commands) {
  std::string text = fmt::format(kFishHead, command_names(commands, " "));
  for (const CommandHelp& command : commands)
    text += fmt::format("complete -c dstrain -n __dstrain_first -a {} -d {}\n", command.name,
                        fish_text(command.summary));
  for (const CommandHelp& command : commands) text += fish_command(command);
  return text;
}

}  // namespace dstrain
