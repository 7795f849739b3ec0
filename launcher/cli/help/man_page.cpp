#include "launcher/cli/help/man_page.h"

#include <fmt/format.h>

#include <string_view>

#include "launcher/cli/help/help_text.h"

namespace dstrain {
namespace {

// What comes before the list of commands: version, synopsis and description replace the braces. Lines are not stretched.
constexpr const char* kTroffHead = R"(.\" Written by `dstrain help --man`.
.TH DSTRAIN 1 "" "dstrain {}" "User Commands"
.ad l
.SH NAME
dstrain \- distributed training from a DeepSpeed configuration
.SH SYNOPSIS
{} \fIWORDS\fR...
.SH DESCRIPTION
{}
.SH COMMANDS
)";

// Returns a text that troff shows as it is. Dashes are those that a reader can copy into a shell.
std::string troff_text(std::string_view text) {
  std::string shown;
  for (const char c : text) {
    switch (c) {
      case '\\':
        shown += "\\e";
        break;
      case '-':
        shown += "\\-";
        break;
      case '\'':
        shown += "\\(aq";
        break;
      case '"':
        shown += "\\(dq";
        break;
      case '`':
        shown += "\\(ga";
        break;
      case '^':
        shown += "\\(ha";
        break;
      case '~':
        shown += "\\(ti";
        break;
      default:
        shown += c;
    }
  }
  return shown.starts_with('.') ? "\\&" + shown : shown;
}

std::string bold(std::string_view text) {
  return fmt::format("\\fB{}\\fR", troff_text(text));
}

// Returns an entry of a list: `about`, which is troff already, and a text below.
std::string troff_entry(const std::string& about, std::string_view text) {
  return fmt::format(".TP\n{}\n{}\n", about, troff_text(text));
}

std::string troff_option(const OptionHelp& option) {
  std::string about;
  for (const std::string& name : option.names) about += (about.empty() ? "" : ", ") + bold(name);
  if (const std::string& placeholder = option.value.placeholder; !placeholder.empty())
    about += fmt::format(" \\fI{}\\fR", troff_text(placeholder));
  std::string entry = troff_entry(about, option.does);
  for (const KnownValue& value : option.value.words)
    if (!value.does.empty())
      entry += fmt::format(".br\n{}: {}\n", bold(value.word), troff_text(value.does));
  return entry;
}

std::string troff_command(const CommandHelp& command) {
  std::string text =
      fmt::format(".SH \"dstrain {}\"\n{}\n.SS Synopsis\n{}\n.SS Examples\n",
                  troff_text(command.name), troff_text(command.does), bold(usage_of(command)));
  for (const CommandExample& example : command.examples)
    text += troff_entry(bold(example.command), example.says);
  for (const OptionGroup& group : command.groups) {
    text += fmt::format(".SS \"{}\"\n", troff_text(group.heading));
    for (const OptionHelp& option : group.options) text += troff_option(option);
  }
  if (const std::string note = without_effect_text(command); !note.empty())
    text += ".PP\n" + troff_text(note) + "\n";
  return text;
}

}  // namespace

std::string man_page(const std::vector<CommandHelp>& commands, const std::string& version) {
  std::string page = fmt::format(kTroffHead, troff_text(version), bold("dstrain [COMMAND]"),
                                 troff_text(kProgramDoes));
  for (const CommandHelp& command : commands)
    page += troff_entry(bold(fmt::format("dstrain {}{}{}", command.name,
                                         command.usage.empty() ? "" : " ", command.usage)),
                        command.summary);
  page += fmt::format(".PP\nA command line without the name of a command is one of {}.\n",
                      bold(commands.front().name));
  for (const CommandHelp& command : commands) page += troff_command(command);
  return page + fmt::format(".SH \"EXIT STATUS\"\n{}\n", troff_text(kExitStatus));
}

}  // namespace dstrain
