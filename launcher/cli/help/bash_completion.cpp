#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "launcher/cli/help/completion.h"

namespace dstrain {
namespace {

// What comes before the tables. The names of the commands replace COMMANDS, those of options with several values, behind
// their command, SEVERAL.
constexpr std::string_view kBashHead =
    R"bash(# Completion of dstrain in bash, written by `dstrain help --completion bash`.
_dstrain() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  # bash splits --option=value at the sign.
  if [[ $current == = ]]; then
    current=
  elif [[ $previous == = ]]; then
    previous=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  local command=train
  if ((COMP_CWORD > 1)); then
    case ${COMP_WORDS[1]} in
      COMMANDS) command=${COMP_WORDS[1]} ;;
    esac
  fi
  # An option that takes several values may stand further ahead.
  local at=$((COMP_CWORD - 1))
  while ((at > 1)) && [[ ${COMP_WORDS[at]} != -* ]]; do ((at--)); done
  case "$command ${COMP_WORDS[at]}" in
    SEVERAL) previous=${COMP_WORDS[at]} ;;
  esac
  # value: whether the word is, or may be, a value; words: those that are known; files: f for files, d for folders.
  local options= value= words= files=
  case $command in
)bash";

constexpr std::string_view kBashTail = R"bash(  esac
  if ((COMP_CWORD == 1)); then
    files=
    if [[ $current == -* ]]; then words=$options; else words='COMMANDS'; fi
  elif [[ -z $value || ($value == possible && $current == -*) ]]; then
    words=$options files=
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  if [[ -n $files ]]; then
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen "-$files" -- "$current")
    compopt -o filenames 2>/dev/null
  fi
}
complete -F _dstrain dstrain
)bash";

// Returns the text with `value` in place of `name`.
std::string filled_in(std::string_view text, std::string_view name, const std::string& value) {
  const size_t at = text.find(name);
  return fmt::format("{}{}{}", text.substr(0, at), value, text.substr(at + name.size()));
}

// Returns the assignments that say how a value is completed.
std::string bash_value(const ValueHelp& value, bool optional) {
  std::string text = optional ? "value=possible" : "value=needed";
  if (!value.words.empty()) text += fmt::format(" words='{}'", known_words(value));
  if (value.files != FileNames::none)
    text += value.files == FileNames::any ? " files=f" : " files=d";
  return text;
}

std::string bash_command(const CommandHelp& command) {
  std::string options;
  std::vector<std::pair<std::string, std::string>> cases;  // what to do, and the options for which
  for (const OptionHelp& option : all_options(command)) {
    options += (options.empty() ? "" : " ") + fmt::format("{}", fmt::join(option.names, " "));
    if (option.value.placeholder.empty()) continue;
    const std::string does =
        bash_value(option.value, option.value_optional || option.several_values);
    const std::string names = fmt::format("{}", fmt::join(option.names, "|"));
    const auto known = std::ranges::find(cases, does, [](const auto& c) { return c.first; });
    if (known == cases.end())
      cases.emplace_back(does, names);
    else
      known->second += "|" + names;
  }
  if (!command.operand.placeholder.empty())
    cases.emplace_back(bash_value(command.operand, true), "*");
  std::string text = fmt::format("    {})\n      options='{}'\n", command.name, options);
  if (!cases.empty()) {
    text += "      case $previous in\n";
    for (const auto& [does, names] : cases) text += fmt::format("        {}) {} ;;\n", names, does);
    text += "      esac\n";
  }
  return text + "      ;;\n";
}

}  // namespace

std::string command_names(const std::vector<CommandHelp>& commands, const std::string& separator) {
  std::vector<std::string> names;
  for (const CommandHelp& command : commands) names.push_back(command.name);
  return fmt::format("{}", fmt::join(names, separator));
}

std::string known_words(const ValueHelp& value) {
  std::vector<std::string> words;
  for (const KnownValue& known : value.words) words.push_back(known.word);
  return fmt::format("{}", fmt::join(words, " "));
}

std::string bash_completion(const std::vector<CommandHelp>& commands) {
  std::vector<std::string> several;
  for (const CommandHelp& command : commands)
    for (const OptionHelp& option : all_options(command))
      if (option.several_values)
        for (const std::string& name : option.names)
          several.push_back(fmt::format("'{} {}'", command.name, name));
  std::string text =
      filled_in(filled_in(kBashHead, "COMMANDS", command_names(commands, "|")), "SEVERAL",
                several.empty() ? "''" : fmt::format("{}", fmt::join(several, "|")));
  for (const CommandHelp& command : commands) text += bash_command(command);
  return text + filled_in(kBashTail, "COMMANDS", command_names(commands, " "));
}

}  // namespace dstrain
