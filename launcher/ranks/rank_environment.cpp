#include "launcher/ranks/rank_environment.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "launcher/connection/secret.h"
#include "launcher/process/stop_signals.h"
#include "runtime/config/shell_quote.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostFileBytes = int64_t{64} << 20;
constexpr std::array<std::string_view, 3> kPrefixes{"NCCL_", "UCX_", "OMPI_"};
constexpr std::array<std::string_view, 2> kNames{"OMP_NUM_THREADS", "DSTRAIN_MAX_ISA"};

bool passes(std::string_view name) {
  return std::ranges::find(kNames, name) != kNames.end() ||
         std::ranges::any_of(kPrefixes, [&](std::string_view p) { return name.starts_with(p); });
}

std::string trimmed(const std::string& text) {
  constexpr const char* blanks = " \t\r";
  const size_t begin = text.find_first_not_of(blanks);
  return begin == std::string::npos ? ""
                                    : text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

bool is_quoted(const std::string& value) {
  return value.size() >= 2 && (value.front() == '"' || value.front() == '\'') &&
         value.front() == value.back();
}

using Variables = std::map<std::string, std::string>;

void read_file(const EnvironmentSources::File& file, Variables& all,
               std::vector<std::string>& warnings) {
  std::istringstream in(std::string(without_byte_order_mark(file.text)));
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    line = trimmed(line);
    if (line.empty() || line.starts_with('#')) continue;
    const size_t equals = std::min(line.find('='), line.size());
    const std::string name = trimmed(line.substr(0, equals));
    if (equals == line.size() || !is_variable_name(name) || line.find('\0') != std::string::npos)
      fail_user("{}:{}: expected NAME=VALUE with a name of letters, digits and _, got '{}'",
                file.path, number, printable(line));
    const std::string value = trimmed(line.substr(equals + 1));
    if (is_quoted(value))
      warnings.push_back(fmt::format("{}:{}: the quotes are part of {}'s value", file.path, number,
                                     printable(name)));
    all[name] = value;
  }
}

fs::path home_directory() {
  const char* home = std::getenv("HOME");
  return home == nullptr ? "" : home;
}

}  // namespace

RankEnvironment rank_environment(const EnvironmentSources& sources) {
  RankEnvironment result;
  Variables all;
  for (const auto& [name, value] : sources.own)
    if (passes(name)) all[name] = value;
  for (const EnvironmentSources::File& file : sources.files) read_file(file, all, result.warnings);
  for (const std::string& text : sources.exports) {
    const size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    if (name == kSecretVariable)
      fail_user("--export {}: ranks do not get the secret: leave it out", name);
    if (equals != std::string::npos) {
      all[name] = text.substr(equals + 1);
      continue;
    }
    const auto own = sources.own.find(name);
    if (own == sources.own.end())
      fail_user("--export {}: there is no such variable here: set it, or use --export {}=VALUE",
                name, name);
    all[name] = own->second;
  }
  if (all.erase(kSecretVariable) > 0)
    result.warnings.push_back(fmt::format(
        "{} in a file of variables has no effect: ranks do not get the secret", kSecretVariable));
  result.variables.assign(all.begin(), all.end());
  return result;
}

void check_for_ssh(const Environment& variables, const std::vector<std::string>& mpirun_words) {
  constexpr const char* reason =
      "mpirun hands it to other hosts' shells as it is: expected letters, digits and / . , : ^ = @ "
      "+ _ -";
  const auto safe = [](std::string text) {
    // Open MPI's lists begin with '^' and its settings have '=', which no POSIX shell changes within a word.
    std::erase_if(text, [](char c) { return c == '^' || c == '='; });
    return text.empty() || safe_without_quotes(text);
  };
  for (const auto& [name, value] : variables)
    if (name.starts_with("OMPI_MCA_") && !safe(value))
      fail_user("{} is '{}', and {}", name, printable(value), reason);
  for (const std::string& word : mpirun_words)
    if (!safe(word)) fail_user("--launcher_args has '{}', and {}", printable(word), reason);
}

EnvironmentSources environment_sources(std::vector<std::string> exports) {
  EnvironmentSources sources;
  sources.exports = std::move(exports);
  sources.own = own_environment();
  const char* const other_name = std::getenv("DS_ENV_FILE");
  const std::string name = other_name == nullptr ? ".deepspeed_env" : other_name;
  if (name.empty()) return sources;
  std::vector<std::string> paths = {name};
  const fs::path home = home_directory();
  std::error_code none;
  const bool in_home =
      fs::path(name).is_relative() && !home.empty() && !fs::equivalent(home, ".", none);
  if (in_home) paths.insert(paths.begin(), (home / name).string());
  const auto read = [&sources](const std::string& path, std::string_view what) {
    sources.files.push_back({path, read_input_file(path, what, kMostFileBytes)});
  };
  for (const std::string& path :
       paths)  // a folder of the file's name may be there for another purpose
    if (fs::is_regular_file(path, none)) read(path, "the file of variables");
  if (sources.files.empty() && other_name != nullptr)
    read(name, fmt::format("the file of variables{} that DS_ENV_FILE names,",
                           in_home ? ", in the home directory or here," : ""));
  return sources;
}

void ensure_environment(const Environment& variables, const std::vector<std::string>& words) {
  const bool as_wanted = std::ranges::all_of(variables, [](const auto& variable) {
    const char* own = std::getenv(variable.first.c_str());
    return own != nullptr && own == variable.second;
  });
  if (as_wanted) return;
  std::vector<std::string> program = {"/proc/self/exe"};
  program.insert(program.end(), words.begin(), words.end());
  std::vector<std::string> lines = merged_environment(variables);
  release_stop_signals();
  ::execve(program.front().c_str(), exec_pointers(program).data(), exec_pointers(lines).data());
  fail_run("cannot start {} again: {}", program.front(), std::strerror(errno));
}

Environment thread_environment(int cores, int asked_for) {
  return {{"OMP_NUM_THREADS", std::to_string(asked_for > 0 ? asked_for : cores)}};
}

}  // namespace dstrain
