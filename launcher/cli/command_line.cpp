#include "launcher/cli/command_line.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "launcher/cli/headings.h"
#include "launcher/cli/option_advice.h"
#include "runtime/config/shell_quote.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

// The group of options without effect, which no help shows.
constexpr const char* kWithoutEffect = "without effect";

std::vector<std::string> split(const std::string& names) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < names.size();) {
    const size_t comma = std::min(names.find(',', begin), names.size());
    parts.push_back(names.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return parts;
}

}  // namespace

CommandLine::CommandLine(const std::string& command, const std::string& what_it_does)
    : app_(std::make_unique<CLI::App>(what_it_does, "dstrain " + command)),
      command_(command),
      names_{"--help"} {
  app_->allow_extras();
  app_->set_help_flag("-h,--help", "print this text")->group(heading::kPrinting);
}

CommandLine::~CommandLine() = default;

void CommandLine::group(const std::string& heading) {
  app_->option_defaults()->group(heading);
}

void CommandLine::option(const std::string& names, const std::string& placeholder,
                         const std::string& help, const Reader& read) {
  add(names, placeholder, help, read, 1, 1, false);
}

void CommandLine::optional_value(const std::string& names, const std::string& placeholder,
                                 const std::string& help, const Reader& read) {
  add(names, placeholder, help, read, 0, 1, false);
}

void CommandLine::repeated(const std::string& names, const std::string& placeholder,
                           const std::string& help, const Reader& read) {
  add(names, placeholder, help, read, 1, 1, true);
}

void CommandLine::list(const std::string& names, const std::string& placeholder,
                       const std::string& help, const Reader& read) {
  add(names, placeholder, help, read, 1, CLI::detail::expected_max_vector_size, true);
}

void CommandLine::add(const std::string& names, const std::string& placeholder,
                      const std::string& help, const Reader& read, int least_values,
                      int most_values, bool many) {
  const std::vector<std::string> all = split(names);
  remember(all);
  if (many) repeatable_.insert(all.front());
  if (least_values > 0) value_names_.insert(value_names_.end(), all.begin(), all.end());
  const auto read_all = [name = all.front(), read, many](const CLI::results_t& values) {
    if (values.size() > 1 && !many) fail_user("{} is given {} times", name, values.size());
    for (const std::string& value : values) read(name, value);
    return true;
  };
  app_->add_option(names, read_all, help)
      ->type_name(placeholder)
      ->expected(least_values, most_values)
      ->allow_extra_args(most_values > 1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void CommandLine::flag(const std::string& names, const std::string& help, bool& target) {
  remember(split(names));
  app_->add_flag(names, target, help);
}

void CommandLine::operands(const std::string& placeholder, std::vector<std::string>& target) {
  operands_ = &target;
  operand_ = placeholder;
}

void CommandLine::values(const std::string& name, const std::vector<KnownValue>& known) {
  std::vector<KnownValue>& values = known_values_[name];
  values.insert(values.end(), known.begin(), known.end());
}

void CommandLine::example(const std::string& command, const std::string& says) {
  examples_.push_back({command, says});
}

void CommandLine::without_effect(const std::vector<std::string>& options) {
  for (const std::string& option : options) app_->get_option(option)->group(kWithoutEffect);
}

ValueHelp CommandLine::value_of(const std::string& name, const std::string& placeholder) const {
  ValueHelp value = value_of_placeholder(placeholder);
  if (const auto known = known_values_.find(name); known != known_values_.end())
    value.words.insert(value.words.end(), known->second.begin(), known->second.end());
  return value;
}

OptionHelp CommandLine::help_of(const CLI::Option& option) const {
  OptionHelp help;
  for (const std::string& name : option.get_snames()) help.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) help.names.push_back("--" + name);
  const std::string first = "--" + option.get_lnames().front();
  help.value = value_of(first, option.get_type_name());
  help.value_optional = !help.value.placeholder.empty() && option.get_expected_min() == 0;
  help.several_values = option.get_expected_max() > 1;
  help.repeatable = repeatable_.contains(first);
  help.does = option.get_description();
  return help;
}

CommandHelp CommandLine::help() const {
  CommandHelp help;
  help.name = command_;
  help.does = app_->get_description();
  help.examples = examples_;
  help.operand = value_of(operand_, operand_);
  const CLI::App& app = *app_;
  std::vector<const CLI::Option*> options = app.get_options();
  // CLI11 has added --help before all others, and readers look for it last.
  std::erase(options, app.get_help_ptr());
  options.push_back(app.get_help_ptr());
  for (const CLI::Option* option : options) {
    const std::string& heading = option->get_group();
    if (heading == kWithoutEffect) {
      help.without_effect.push_back("--" + option->get_lnames().front());
      continue;
    }
    auto group = std::ranges::find(help.groups, heading, &OptionGroup::heading);
    if (group == help.groups.end()) group = help.groups.insert(group, OptionGroup{heading, {}});
    group->options.push_back(help_of(*option));
  }
  return help;
}

// A name of one letter is like any other and no help as a suggestion.
void CommandLine::remember(const std::vector<std::string>& names) {
  std::ranges::copy_if(names, std::back_inserter(names_),
                       [](const std::string& name) { return name.starts_with("--"); });
}

std::string CommandLine::expected_of(const std::string& name) const {
  const CLI::Option& option = *app_->get_option(name);
  return fmt::format("expected {} {}: {}", name, option.get_type_name(), option.get_description());
}

std::optional<CommandHelp> CommandLine::parse(const std::vector<std::string>& words) {
  refuse_swallowed(words);
  if (kept_words_ != nullptr) {
    *kept_words_ = command_ == "train" ? "dstrain" : "dstrain " + command_;
    for (const std::string& word : words) *kept_words_ += " " + shell_quoted(word);
  }
  std::vector<std::string> reversed(words.rbegin(), words.rend());  // CLI11 reads them from the end
  try {
    app_->parse(reversed);
  } catch (const CLI::CallForHelp&) {
    return help();
  } catch (const CLI::ArgumentMismatch& e) {  // "--config: 1 required FILE missing"
    const std::string text = e.what(), name = text.substr(0, text.find(':'));
    fail_user("{}: the value is missing, {}", name, expected_of(name));
  } catch (const CLI::ParseError& e) {
    fail_user("{}", e.what());
  }
  const std::vector<std::string> rest = app_->remaining();
  for (size_t i = 0; i < rest.size(); ++i) {
    const std::string& word = rest[i];
    if (operands_ == nullptr || word.starts_with('-') || word.empty())
      refuse(word, {rest.begin() + static_cast<std::ptrdiff_t>(i) + 1, rest.end()});
    operands_->push_back(word);
  }
  return std::nullopt;
}

void CommandLine::refuse_swallowed(const std::vector<std::string>& words) const {
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string name = words[i].substr(0, words[i].find('='));
    if (std::ranges::count(value_names_, words[i - 1]) > 0 && std::ranges::count(names_, name) > 0)
      fail_user("{}: the value is missing, the option {} follows", words[i - 1], name);
  }
}

void CommandLine::refuse(const std::string& word, std::vector<std::string> behind) const {
  const std::string shown = printable(word);
  if (!word.starts_with('-'))
    fail_user("unexpected argument '{}' (options start with --; see dstrain {} --help)", shown,
              command_);
  const std::string name = word.substr(0, word.find('='));
  behind.erase(std::ranges::find_if(behind, [](const auto& w) { return w.starts_with('-'); }),
               behind.end());
  if (models_ != nullptr)
    if (const std::string advice = advice_on({word, std::move(behind)}, names_, *models_);
        !advice.empty())
      fail_user("unknown option '{}': {}", shown, advice);
  const std::string near = nearest(name, names_);
  if (near.empty()) fail_user("unknown option '{}' (see dstrain {} --help)", shown, command_);
  fail_user("unknown option '{}'; did you mean {}?", shown, near);
}

}  // namespace dstrain
