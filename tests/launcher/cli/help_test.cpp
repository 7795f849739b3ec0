// What the help says: the same of every command, on a terminal, in the manual page and in completions.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <iomanip>
#include <set>
#include <sstream>

#include "launcher/cli/help/completion.h"
#include "launcher/cli/help/help_text.h"
#include "launcher/cli/help/man_page.h"
#include "launcher/cli/parse_arguments.h"
#include "models/registry.h"
#include "runtime/config/pipeline_schedule.h"
#include "runtime/data/chat/chat_template.h"

namespace dstrain {
namespace {

using Words = std::vector<std::string>;

// Splits at blanks outside of double quotes.
Words words_of(const std::string& line) {
  std::istringstream in(line);
  Words words;
  for (std::string word; in >> std::quoted(word);) words.push_back(word);
  return words;
}

Words split_lines(const std::string& text) {
  std::istringstream in(text);
  Words lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string printed(const std::string& line) {
  const Arguments arguments = parse_arguments(words_of(line), model_registry());
  if (const auto* text = std::get_if<PrintArguments>(&arguments)) return text->text;
  const auto& help = std::get<HelpArguments>(arguments);
  return help.commands.empty() ? help_text(help.command)
                               : overview_text(help.command, help.commands);
}

// Returns the text with one blank between two words.
std::string without_breaks(const std::string& text) {
  return fmt::format("{}", fmt::join(words_of(text), " "));
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Returns the option of a command that has this name.
OptionHelp option_of(const std::string& command, const std::string& name) {
  for (const CommandHelp& help : command_helps(model_registry()))
    for (const OptionHelp& option : all_options(help))
      if (help.name == command && std::ranges::count(option.names, name) > 0) return option;
  FAIL(command << " has no option " << name);
  return {};
}

TEST_CASE("--help of the program lists the commands, and the options of train") {
  CHECK(printed("--version").starts_with("dstrain "));
  const std::string overview = printed("--help");
  CHECK(printed("help") == overview);
  CHECK(printed("--config c --help") == overview);
  for (const CommandHelp& command : command_helps(model_registry())) {
    CAPTURE(command.name);
    CHECK(contains(overview,
                   command.name == "train" ? "dstrain [train]" : "dstrain " + command.name));
    CHECK(contains(without_breaks(overview), command.summary));
    const std::string help = printed(command.name + " --help");
    CHECK(contains(help, usage_of(command)));
    CHECK(printed("help " + command.name) == help);
  }
  for (const char* part : {"Exit status", "--num_gpus", "--resume", "Examples:\n  dstrain "})
    CHECK(contains(overview, part));
  for (const char* fault : {"dropped_gather", "wrong_beta", "lost_residual"})
    CHECK(contains(printed("verify --help"), fault));
}

TEST_CASE("every command has examples, which the program takes") {
  for (const CommandHelp& help : command_helps(model_registry())) {
    CAPTURE(help.name);
    CHECK(help.examples.size() >= (help.name == "models" ? 2U : 3U));
    CHECK(help.examples.size() <= 5);
    const std::string text = help_text(help);
    CHECK(text.find("Examples:") < text.find("Usage:"));
    for (const CommandExample& example : help.examples) {
      CAPTURE(example.command);
      Words words = words_of(example.command);
      REQUIRE(words.size() >= (help.name == "models" || help.name == "doctor" ? 2U : 3U));
      CHECK(words[0] == "dstrain");
      if (help.name != "train") CHECK(words[1] == help.name);
      words.erase(words.begin());
      CHECK_NOTHROW(parse_arguments(words, model_registry()));
      CHECK_FALSE(example.says.empty());
    }
  }
}

TEST_CASE("every option has a heading and says what it does") {
  for (const CommandHelp& help : command_helps(model_registry())) {
    std::set<std::string> headings, names;
    REQUIRE_FALSE(help.groups.empty());
    CHECK(help.groups.back().options.back().names == Words{"-h", "--help"});
    for (const OptionGroup& group : help.groups) {
      CAPTURE(help.name, group.heading);
      CHECK((!group.heading.empty() && group.heading != "Options"));
      CHECK(headings.insert(group.heading).second);
      for (const OptionHelp& option : group.options) {
        CAPTURE(option.names);
        CHECK_FALSE(option.does.empty());
        for (const std::string& name : option.names) CHECK(names.insert(name).second);
      }
    }
  }
}

TEST_CASE("an option of train that means nothing to a command is accepted, and named in one line") {
  std::set<std::string> of_train;
  const std::vector<CommandHelp> helps = command_helps(model_registry());
  for (const OptionHelp& option : all_options(helps.front()))
    of_train.insert(option.names.begin(), option.names.end());
  for (const CommandHelp& help : helps) {
    CAPTURE(help.name);
    for (const std::string& name : help.without_effect) {
      CAPTURE(name);
      CHECK(of_train.contains(name));
      for (const OptionHelp& option : all_options(help))
        CHECK(std::ranges::count(option.names, name) == 0);
    }
  }
  CHECK(helps.front().without_effect.empty());
  CHECK(contains(printed("plan --help"),
                 "\n\nAccepted as in a command line of train, and without effect here: --steps, "
                 "--epochs, --seed.\n"));
  CHECK(std::get<PlanArguments>(
            parse_arguments({"plan", "--config", "c", "--seed", "3"}, model_registry()))
            .request.seed == 3);
  CHECK_FALSE(contains(printed("doctor --help"), "\n  --dry_run"));
  CHECK(std::get<DoctorArguments>(
            parse_arguments({"doctor", "--config", "c", "--dry_run"}, model_registry()))
            .words == Words{"--config", "c", "--dry_run"});
  // A message names an option that the help does not show.
  CHECK_THROWS_WITH(
      parse_arguments({"plan", "--config", "c", "--seed"}, model_registry()),
      "--seed: the value is missing, expected --seed N: seed of weights, order and dropout");
}

TEST_CASE("lines of the help are as long as the terminal allows, up to 100 characters") {
  const std::vector<CommandHelp> helps = command_helps(model_registry());
  for (const int columns : {100, 80, 60}) {
    std::vector<std::string> texts = {overview_text(helps.front(), helps, columns)};
    for (const CommandHelp& help : helps) texts.push_back(help_text(help, columns));
    size_t longest = 0;
    for (const std::string& text : texts)
      for (const std::string& line : split_lines(text)) {
        CAPTURE(columns, line);
        CHECK_FALSE(line.ends_with(' '));
        // Command lines are not broken.
        const bool broken = !line.starts_with("  dstrain ");
        if (broken || columns == 100) CHECK(line.size() <= static_cast<size_t>(columns));
        if (broken) longest = std::max(longest, line.size());
      }
    CHECK(longest > static_cast<size_t>(columns) - 6);
  }
  CHECK(help_text(helps[1], 200) == help_text(helps[1], 100));
  CHECK(help_text(helps[1], 0) == help_text(helps[1], 40));
}

TEST_CASE("a long description goes on below its beginning") {
  CommandHelp help;
  help.name = "sum";
  help.operand = value_of_placeholder("FILE...");
  help.does = "Adds up the numbers of files, one in each line.";
  help.examples = {{"dstrain sum a", "of one file"},
                   {"dstrain sum --quickly a b c d e f g", "of seven"}};
  OptionHelp quickly{
      .names = {"--quickly"}, .value = {}, .does = "without a look at the last digits"};
  OptionHelp base{.names = {"-b", "--numbers_with_the_base"},
                  .value = value_of_placeholder("N|ten"),
                  .does = "of the numbers"};
  base.value.words.front().does = "as people count";
  help.groups = {{"How", {quickly}}, {"What", {base}}};
  help.without_effect = {"--steps"};
  CHECK(help_text(help, 40) ==
        R"(Adds up the numbers of files, one in
each line.

Examples:
  dstrain sum a  of one file
  dstrain sum --quickly a b c d e f g
                 of seven

Usage: dstrain sum FILE... [OPTIONS]

How:
  --quickly  without a look at the last
             digits

What:
  -b, --numbers_with_the_base N|ten
             of the numbers

Values of --numbers_with_the_base:
  ten  as people count

Accepted as in a command line of train,
and without effect here: --steps.
)");
}

TEST_CASE("a placeholder says what completes a value") {
  const auto shown = [](const std::string& placeholder) {
    const ValueHelp value = value_of_placeholder(placeholder);
    return known_words(value) + (value.files == FileNames::any       ? " files"
                                 : value.files == FileNames::folders ? " folders"
                                                                     : "");
  };
  CHECK(shown("auto|cpu|cuda") == "auto cpu cuda");
  CHECK(shown("gpipe|1f1b|zb-h1") == "gpipe 1f1b zb-h1");
  CHECK(shown("K|selective") == "selective");
  CHECK(shown("FILE|DIR|random") == "random files");
  CHECK(shown("[FILE.svg]") == " files");
  CHECK(shown("RUN") == " folders");
  for (const char* other : {"N", "0-3,8-11", "1,2,3", "path.to.key=value", "NAME[=VALUE]", "BYTES",
                            "NODE[:slot,slot][@NODE...]", ""})
    CHECK(shown(other).empty());
}

TEST_CASE("completions know the values that the program takes") {
  const auto words = [](const std::string& command, const std::string& option) {
    return known_words(option_of(command, option).value);
  };
  CHECK(words("train", "--device") == "auto cpu cuda");
  CHECK(words("export", "--format") == "hf safetensors peft gguf");
  for (const std::string& type : words_of(words("plan", "--model")))
    CHECK(model_registry().find(type) != nullptr);
  std::string schedules;
  for (const auto schedule :
       {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b, PipelineSchedule::interleaved,
        PipelineSchedule::zb_h1, PipelineSchedule::zb_v})
    schedules += (schedules.empty() ? "" : " ") + std::string(schedule_name(schedule));
  CHECK(words("train", "--pipeline_schedule") == schedules);
  for (const std::string& name : words_of(words("tokenize", "--chat_template")))
    CHECK_FALSE(built_in_template(name).empty());
  for (const std::string& fault : words_of(words("verify", "--seed_fault")))
    CHECK_NOTHROW(
        parse_arguments({"verify", "--config", "c", "--seed_fault", fault}, model_registry()));
}

// Returns the text without what troff reads as an instruction within a line.
std::string without_troff(std::string text) {
  const auto replace = [&text](const std::string& from, const std::string& to) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
  };
  for (const char* font : {"\\fB", "\\fI", "\\fR", "\\&"}) replace(font, "");
  replace("\\-", "-");
  replace("\\(aq", "'");
  replace("\\(dq", "\"");
  return text;
}

TEST_CASE("manual page and completions have every command and every option") {
  const std::vector<CommandHelp> helps = command_helps(model_registry());
  const std::string page = man_page(helps, "1.2.3");
  CHECK(page == [] {
    std::string text = printed("help --man");
    const size_t at = text.find("\"dstrain ");
    return text.replace(at, text.find('"', at + 1) - at, "\"dstrain 1.2.3");
  }());
  const std::string plain = without_troff(page), bash = printed("help --completion bash"),
                    zsh = printed("help --completion zsh"),
                    fish = printed("help --completion fish");
  for (const CommandHelp& help : helps) {
    CAPTURE(help.name);
    const size_t begin = plain.find(".SH \"dstrain " + help.name + "\"");
    REQUIRE(begin != std::string::npos);
    const std::string part = plain.substr(begin, plain.find("\n.SH", begin) - begin) + "\n";
    CHECK(contains(part, help.does));
    CHECK(contains(bash, "\n    " + help.name + ")\n"));
    CHECK(contains(zsh, "\n    (" + help.name + ")\n"));
    CHECK(contains(fish, " -a " + help.name + " -d "));
    for (const CommandExample& example : help.examples) CHECK(contains(part, example.command));
    for (const OptionHelp& option : all_options(help)) {
      CAPTURE(option.names);
      CHECK(contains(part, "\n.TP\n" + shown_option(option) + "\n" + option.does + "\n"));
      for (const std::string& name : option.names)
        CHECK((contains(bash, name) && contains(zsh, name)));
      CHECK(contains(fish, "'__dstrain_runs " + help.name + "'"));
      CHECK(contains(fish, " -l " + option.names.back().substr(2) + " "));
    }
  }
}

}  // namespace
}  // namespace dstrain
