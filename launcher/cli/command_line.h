// CommandLine: the options of one command. A thin door to CLI11 that gives every message one form.
// Stands on CLI11 (in the .cpp alone). Invariant: an option's value reaches its reader as text, once.
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

class CommandLine {
 public:
  // Reads the value of an option; `option` is its name as messages show it. Throws UserError.
  using Reader = std::function<void(const std::string& option, const std::string& value)>;

  CommandLine(const std::string& command, const std::string& what_it_does);
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;
  ~CommandLine();

  // `names`: "--config,--deepspeed_config", the first is the one that messages show.
  void option(const std::string& names, const std::string& placeholder, const std::string& help,
              const Reader& read);
  // As option(), but may be given many times.
  void repeated(const std::string& names, const std::string& placeholder, const std::string& help,
                const Reader& read);
  void flag(const std::string& names, const std::string& help, bool& target);

  // Reads `words`; returns the help text instead where that is asked for. Throws UserError of one
  // line: an unknown option (with the nearest one), a missing or doubled value.
  std::optional<std::string> parse(const std::vector<std::string>& words);

 private:
  void add(const std::string& names, const std::string& placeholder, const std::string& help,
           const Reader& read, bool many);
  void remember(const std::vector<std::string>& names);
  [[noreturn]] void refuse(const std::string& word) const;

  std::unique_ptr<CLI::App> app_;
  std::string command_;
  std::vector<std::string> names_;  // of all options, for the nearest one
};

}  // namespace dstrain
