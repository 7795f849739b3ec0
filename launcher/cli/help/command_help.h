// CommandHelp: what the help of a command says, as data. The help on a terminal, the manual page and the completions of
// shells are written from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dstrain {

// Whether a value may be the name of a file.
enum class FileNames : uint8_t { none, any, folders };

// A value that is known before anybody gives it.
struct KnownValue {
  std::string word;
  std::string does{};  // empty: the help of its option says it
};

// A value that an option takes, or a command without an option.
struct ValueHelp {
  std::string placeholder;  // "FILE", "auto|cpu|cuda", "[COMMAND]"; empty: no value is taken
  std::vector<KnownValue> words{};
  FileNames files = FileNames::none;
};

// An option as the help shows it.
struct OptionHelp {
  std::vector<std::string> names;  // with their dashes, the short ones first
  ValueHelp value;
  bool value_optional = false;
  bool several_values = false;  // one after the other, as files are given
  bool repeatable = false;
  std::string does;
};

// Options that are shown together.
struct OptionGroup {
  std::string heading;
  std::vector<OptionHelp> options;
};

// A command line that somebody would type, and a few words on what it is for.
struct CommandExample {
  std::string command, says;
};

// All that the help of a command says.
struct CommandHelp {
  std::string name;   // "plan"
  std::string usage;  // the words that the list of commands shows behind the name: "--config FILE"
  std::string summary;  // what the list of commands says of it
  std::string does;     // sentences
  ValueHelp operand;    // words that belong to no option
  std::vector<CommandExample> examples;
  std::vector<OptionGroup> groups;
  // Options that are accepted and mean nothing here, so that a command line of train may be given.
  std::vector<std::string> without_effect;
};

// Returns what a placeholder says of a value: "auto|cpu|cuda" has three words, "DIR|random" a folder and a word.
ValueHelp value_of_placeholder(const std::string& placeholder);

// Returns "-H, --hostfile FILE": how an option is shown.
std::string shown_option(const OptionHelp& option);

// Returns "dstrain export RUN [OPTIONS]".
std::string usage_of(const CommandHelp& help);

// Returns what the help says of options without effect; empty where there are none.
std::string without_effect_text(const CommandHelp& help);

// Returns the options of all groups.
std::vector<OptionHelp> all_options(const CommandHelp& help);

}  // namespace dstrain
