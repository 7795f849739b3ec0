#include <fmt/format.h>

#include <string_view>

#include "launcher/cli/help/completion.h"

namespace dstrain {
namespace {

constexpr std::string_view kZshHead = R"zsh(#compdef dstrain
# Completion of dstrain in zsh, written by `dstrain help --completion zsh`.

# _dstrain_either FILES WORD...: one of the words, or what FILES completes.
_dstrain_either() {
  local files=$1
  shift
  _alternative "values:value:($*)" "files:file:$files"
}

_dstrain() {
  local command=train
)zsh";

constexpr std::string_view kZshTail = R"zsh(  esac
}

if [[ $funcstack[1] == _dstrain ]]; then
  _dstrain "$@"
else
  compdef _dstrain dstrain
fi
)zsh";

// Returns a text between single quotes, with a backslash before each character of `special`.
std::string zsh_text(std::string_view text, std::string_view special) {
  std::string shown;
  for (const char c : text) {
    if (c == '\'')
      shown += "'\\'";
    else if (c == '\\' || special.find(c) != std::string_view::npos)
      shown += '\\';
    shown += c;
  }
  return shown;
}

// Returns the action of _arguments that completes a value.
std::string zsh_action(const ValueHelp& value) {
  const std::string words = known_words(value);
  const std::string files = value.files == FileNames::any       ? "_files"
                            : value.files == FileNames::folders ? "_directories"
                                                                : "";
  if (words.empty()) return files.empty() ? " " : files;
  return files.empty() ? fmt::format("({})", words)
                       : fmt::format(" _dstrain_either {} {}", files, words);
}

// Returns ":FILE:_files", how _arguments is told of a value; empty where there is none.
std::string zsh_value(const ValueHelp& value) {
  if (value.placeholder.empty()) return "";
  return fmt::format(":{}:{}", zsh_text(value.placeholder, ":"), zsh_action(value));
}

// Returns an argument of _arguments for each name of an option.
std::vector<std::string> zsh_option(const OptionHelp& option) {
  std::string before;
  if (option.repeatable)
    before = "*";
  else if (option.names.size() > 1)
    before = fmt::format("({})", fmt::join(option.names, " "));
  std::vector<std::string> arguments;
  for (const std::string& name : option.names) {
    const bool takes = !option.value.placeholder.empty();
    arguments.push_back(fmt::format(
        "'{}{}{}[{}]{}{}'", before, name, takes && name.starts_with("--") ? "=" : "",
        zsh_text(option.does, "[]"), option.value_optional ? ":" : "", zsh_value(option.value)));
  }
  return arguments;
}

std::string zsh_command(const CommandHelp& command) {
  std::vector<std::string> arguments;
  ValueHelp further = command.operand;
  for (const OptionHelp& option : all_options(command)) {
    const std::vector<std::string> more = zsh_option(option);
    arguments.insert(arguments.end(), more.begin(), more.end());
    if (option.several_values) further = option.value;
  }
  if (!further.placeholder.empty()) arguments.push_back(fmt::format("'*{}'", zsh_value(further)));
  return fmt::format("    ({})\n      _arguments \\\n        {}\n      ;;\n", command.name,
                     fmt::join(arguments, " \\\n        "));
}

}  // namespace

std::string zsh_completion(const std::vector<CommandHelp>& commands) {
  std::string text = std::string(kZshHead) + "  local -a commands=(\n";
  for (const CommandHelp& command : commands)
    text += fmt::format("    '{}:{}'\n", command.name, zsh_text(command.summary, ":"));
  text += fmt::format(R"zsh(  )
  if ((CURRENT == 2)) && [[ $words[2] != -* ]]; then
    _describe -t commands command commands
    return
  fi
  case $words[2] in
    ({})
      command=$words[2]
      shift words
      ((CURRENT--))
      ;;
  esac
  case $command in
)zsh",
                      command_names(commands, "|"));
  for (const CommandHelp& command : commands) text += zsh_command(command);
  return text + std::string(kZshTail);
}

}  // namespace dstrain
