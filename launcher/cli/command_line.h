// CommandLine: the options of one command. Wraps CLI11 and gives all error messages the same form. Invariant: each
// value of an option is passed to its reader once, as text.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

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

  // `names`: "--config,--deepspeed_config". Messages use the first.
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
  // Makes errors say what key of a configuration an unknown option means. The caller keeps `models` alive.
  void advise_with(const ModelRegistry& models) { models_ = &models; }

  // Reads `words`. Returns the help text if they ask for it. Throws UserError with one line for an unknown option (with
  // the known one that is most like it), and for a missing or repeated value.
  std::optional<std::string> parse(const std::vector<std::string>& words);

 private:
  void add(const std::string& names, const std::string& placeholder, const std::string& help,
           const Reader& read, int least_values, int most_values, bool many);
  void remember(const std::vector<std::string>& names);
  // Throws UserError if an option that needs a value is followed by an option.
  void refuse_swallowed(const std::vector<std::string>& words) const;
  [[noreturn]] void refuse(const std::string& word) const;

  std::unique_ptr<CLI::App> app_;
  std::string command_;
  std::vector<std::string>* operands_ = nullptr;
  const ModelRegistry* models_ = nullptr;
  std::vector<std::string> names_;        // of all options, to suggest one for an unknown name
  std::vector<std::string> value_names_;  // of those that need a value, short ones included
};

}  // namespace dstrain
