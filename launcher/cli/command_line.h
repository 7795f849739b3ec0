// CommandLine: the options of one command. Wraps CLI11 and gives all error messages the same form. Invariant: each
// value of an option is passed to its reader once, as text.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/cli/help/command_help.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace dstrain {

class ModelRegistry;

class CommandLine {
 public:
  // Reads the value of an option. `option` is its name for messages. Throws UserError.
  using Reader = std::function<void(const std::string& option, const std::string& value)>;

  CommandLine(const std::string& command, const std::string& what_it_does);
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;
  ~CommandLine();

  // The options that are added from now on are shown under `heading`.
  void group(const std::string& heading);
  // `names`: "--config,--deepspeed_config". Messages use the first. `placeholder`: what the help shows for the value; it
  // says what completes it (value_of_placeholder).
  void option(const std::string& names, const std::string& placeholder, const std::string& help,
              const Reader& read);
  // Adds an option that may be given without a value: its reader then gets an empty text.
  void optional_value(const std::string& names, const std::string& placeholder,
                      const std::string& help, const Reader& read);
  // Adds an option that may be given several times.
  void repeated(const std::string& names, const std::string& placeholder, const std::string& help,
                const Reader& read);
  // Adds an option that takes one value or more, and may be given several times.
  void list(const std::string& names, const std::string& placeholder, const std::string& help,
            const Reader& read);
  // Adds words that are no options and no values of options; `target` gets them in order.
  void operands(const std::string& placeholder, std::vector<std::string>& target);
  void flag(const std::string& names, const std::string& help, bool& target);
  // Names values beside those of the placeholder. `name`: an option's first name, or the placeholder of the operands.
  void values(const std::string& name, const std::vector<KnownValue>& known);
  // Adds a command line to the help, "dstrain plan --config c.json", and in a few words what it is for.
  void example(const std::string& command, const std::string& says);
  // Takes options that were added out of the help: they are accepted, as in a command line of train, and mean nothing to
  // this command.
  void without_effect(const std::vector<std::string>& options);
  // Makes errors say what key of a configuration an unknown option means. The caller keeps `models` alive.
  void advise_with(const ModelRegistry& models) { models_ = &models; }

  // Makes parse() write the whole command line, as a shell reads it, into `target`.
  void keep_words(std::string& target) { kept_words_ = &target; }

  // Returns what was added, as the help shows it; `usage` and `summary` are empty.
  CommandHelp help() const;

  // Reads `words`. Returns the help if they ask for it. Throws UserError with one line for an unknown option (with the
  // known one that is most like it), and for a missing or repeated value.
  std::optional<CommandHelp> parse(const std::vector<std::string>& words);

 private:
  void add(const std::string& names, const std::string& placeholder, const std::string& help,
           const Reader& read, int least_values, int most_values, bool many);
  void remember(const std::vector<std::string>& names);
  OptionHelp help_of(const CLI::Option& option) const;
  ValueHelp value_of(const std::string& name, const std::string& placeholder) const;
  // Returns what a message says of the value that an option takes.
  std::string expected_of(const std::string& name) const;
  // Throws UserError if an option that needs a value is followed by an option.
  void refuse_swallowed(const std::vector<std::string>& words) const;
  // `behind`: the words behind `word` that no option has taken.
  [[noreturn]] void refuse(const std::string& word, std::vector<std::string> behind) const;

  std::unique_ptr<CLI::App> app_;
  std::string command_;
  std::vector<std::string>* operands_ = nullptr;
  std::string operand_;  // their placeholder
  const ModelRegistry* models_ = nullptr;
  std::string* kept_words_ = nullptr;
  std::vector<std::string> names_;        // of all options, to suggest one for an unknown name
  std::vector<std::string> value_names_;  // of those that need a value, short ones included
  std::set<std::string> repeatable_;      // the first names of those
  std::map<std::string, std::vector<KnownValue>> known_values_;
  std::vector<CommandExample> examples_;
};

}  // namespace dstrain
