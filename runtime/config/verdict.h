// Verdict: what the configuration says about one key: its state, the place where it was written, and a
// message.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dstrain {

// How dstrain treats a key of the configuration:
//   honoured   used as DeepSpeed uses it
//   no_effect  legal, but changes nothing
//   refused    never supported
//   not_yet    not supported in this version
//   unknown    no such key exists
//   error      the value is wrong
// A key in one of the last four states stops a training run.
enum class State : uint8_t { honoured, no_effect, refused, not_yet, unknown, error };

std::string_view name_of(State state);  // "no_effect"
constexpr bool is_error(State state) {
  return state >= State::refused;
}

// The verdict on one key.
struct Verdict {
  std::string key;           // dotted path: "zero_optimization.stage"; empty: the file itself
  int line = 0, column = 0;  // from 1, in the configuration file; 0 where the value is not in it
  State state = State::honoured;
  std::string message;  // empty: nothing to say
  std::string where;    // "ds_config.json:12:5", "--set", "--steps", or the file's name alone
  bool echo = false;    // repeats another verdict, which has the message for the user
  bool warns = false;   // the run goes on and prints the message once as a warning
  // How a run goes on although the verdict stops it: "`--ignore amp` goes on without it"; empty: no option answers it
  std::string way_on = {};
  std::vector<std::string> settings =
      {};  // KEY=VALUE: with these together the values do not contradict each other
  // The section that has a key whose own name has a dot: `key` reads like the path of another key.
  bool dotted = false;
  std::string section = {};

  // Returns the message and the way on.
  std::string text() const;
};

// Returns whether any verdict stops a run.
bool has_errors(const std::vector<Verdict>& verdicts);

}  // namespace dstrain
